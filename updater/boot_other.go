//go:build !linux

package updater

import "time"

// sinceBoot returns 0: this system has no clock that is asked for here.
func sinceBoot() time.Duration { return 0 }
