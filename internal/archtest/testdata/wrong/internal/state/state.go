package state

import (
	_ "gbatch/internal/model"
	_ "github.com/tidwall/btree"
	_ "sync/atomic"
)
