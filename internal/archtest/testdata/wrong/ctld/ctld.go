package ctld

import (
	"log"
	sys "os"

	_ "gbatch/dbd"
	_ "gbatch/internal/store"
	_ "gbatch/noded/cgroup"
	_ "go.etcd.io/bbolt"
)

func init() {}

func stop() {
	sys.Exit(1)
	log.Fatalf("x")
	defer sys.Exit(2)
}
