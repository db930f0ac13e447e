package queue

import _ "gbatch/internal/cli/info"
