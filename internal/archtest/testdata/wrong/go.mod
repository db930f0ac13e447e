module gbatch
