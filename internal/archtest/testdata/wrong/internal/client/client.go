package client

import (
	_ "crypto/tls"
	_ "gbatch/internal/conf"
)
