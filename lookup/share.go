package lookup

import "errors"

// ErrBudget says that a budget of searches is spent, for the day.
var ErrBudget = errors.New("the day's budget of searches is spent")
