//go:build !linux

package updater

import "time"

// sinceBoot returns 0: no clock that runs during a suspend is known for this system.
func sinceBoot() time.Duration { return 0 }
