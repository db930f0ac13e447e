package util

import _ "gbatch/internal/model"
