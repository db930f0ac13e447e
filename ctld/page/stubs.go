package page

func gpus(*request) (any, error)      { return "", nil }
func queue(*request) (any, error)     { return "", nil }
func shares(*request) (any, error)    { return "", nil }
func timeline(*request) (any, error)  { return "", nil }
func operators(*request) (any, error) { return "", nil }
func (q *request) gpuData()           {}
