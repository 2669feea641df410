package status

import (
	"fmt"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// SpentShares says in a sentence that clients were refused today because what is left is kept for
// others; "": none was.
func SpentShares(uses []lookup.Use, perDay int, now time.Time) string {
	for _, u := range uses {
		if u.Date != now.Local().Format(time.DateOnly) || u.Refused == 0 {
			continue
		}
		clients, it := "1 client has", "it forwards"
		if u.Refused > 1 {
			clients, it = fmt.Sprintf("%d clients have", u.Refused), "they forward"
		}
		return fmt.Sprintf("%s spent %s of the day's %d searches, and what others do not need: suspected names of these clients pass until more is free, at midnight at the latest. If %s for others, write \"budget %d 100%%\".",
			clients, map[bool]string{true: "its share", false: "their shares"}[u.Refused == 1], perDay, it, perDay)
	}
	return ""
}
