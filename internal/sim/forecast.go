package sim

import "context"

func forecast(ctx context.Context, o *Options) error { return nil }
