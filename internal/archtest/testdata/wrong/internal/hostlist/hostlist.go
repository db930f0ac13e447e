package hostlist

import (
	_ "gbatch/internal/model"
	_ "gbatch/internal/version"
)
