package jobtext

import (
	_ "os"
	_ "time"
)
