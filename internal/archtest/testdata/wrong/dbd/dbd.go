package dbd

import (
	"C"

	_ "gbatch/ctld"
	_ "go.etcd.io/bbolt"
)
