package devcluster

import (
	_ "gbatch/cmd/gcli"
	_ "gbatch/ctld"
	_ "gbatch/dbd"
)
