//go:build !linux

package updater

import "time"

// thisBoot returns "": no identity of a boot is known for this system.
func thisBoot() (id string, since time.Duration) { return "", 0 }
