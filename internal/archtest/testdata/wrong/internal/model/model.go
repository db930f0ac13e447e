package model

import (
	_ "gbatch/internal/golden"
	_ "gbatch/internal/hostlist"
	_ "gbatch/internal/state"
	_ "log/slog"
	_ "math/rand/v2"
	_ "time"
)
