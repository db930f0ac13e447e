package model

import (
	_ "gbatch/internal/devcluster"
	_ "gbatch/internal/golden"
	_ "gbatch/internal/sched"
	_ "os"
	_ "time"
)
