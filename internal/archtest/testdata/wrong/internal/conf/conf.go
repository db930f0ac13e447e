package conf

import _ "github.com/hashicorp/raft"
