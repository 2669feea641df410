package updater

import (
	"math/rand/v2"
	"time"
)

// The lengths of waits, as pure functions of a number of failures and a random number. Clock
// counts the failures and keeps the end of a wait. Searches have functions of their own,
// since version 5 publishes no rule for searches.

const (
	backoffUnit = 15 * time.Minute
	maxBackoff  = 24 * time.Hour
	// From cappedFailures on the wait is maxBackoff for every random number:
	// 2^7 × 15 min is 32 h. This also keeps the shift from overflowing.
	cappedFailures = 8
)

// Backoff returns how long to wait after a number of failures in a row:
// MIN(2^(failures-1) × 15 min × (r+1), 24 h) ("Request Frequency", back-off mode).
// r is uniform in [0, 1), a new one for each failure. Without failures it returns 0.
func Backoff(failures int, r float64) time.Duration {
	if failures < 1 {
		return 0
	}
	if failures >= cappedFailures {
		return maxBackoff
	}
	wait := float64(backoffUnit<<(failures-1)) * (r + 1)
	return min(time.Duration(wait), maxBackoff)
}

// Strikes pauses as Chromium's hash_realtime_service does.
const (
	searchStrikes    = 3
	searchPause      = 5 * time.Minute
	maxSearchPause   = 30 * time.Minute
	cappedSearchRuns = 3 // 2^3 × 5 min is 40 min
)

// SearchBackoff returns how long the next search waits after failures in a row, at
// least one. refusals is how many of them were refusals (status 403 or 429) if the last
// one was, otherwise 0. r is uniform in [0, 1). It must be safe for concurrent use.
type SearchBackoff func(failures, refusals int, r float64) time.Duration

// Strict is the SearchBackoff of version 4, the same as for list updates ("Request Frequency",
// back-off mode).
func Strict(failures, _ int, r float64) time.Duration { return Backoff(failures, r) }

// Strikes is the SearchBackoff of servers that publish no rule for searches, as in
// version 5. A refusal counts as in list updates. Other failures pause searches as
// Chromium pauses its real-time look-ups: for 5 minutes after the third in a row,
// doubling with each further one, to at most 30.
func Strikes(failures, refusals int, r float64) time.Duration {
	if refusals > 0 {
		return Backoff(failures, r)
	}
	if failures < searchStrikes {
		return 0
	}
	runs := min(failures-searchStrikes, cappedSearchRuns)
	return min(searchPause<<runs, maxSearchPause)
}

const (
	serviceLevelUnit   = time.Second
	cappedServiceLevel = 5 // 2^5 × 1 s is 32 s, where the doubling ends
)

// ServiceLevel is the SearchBackoff of Web Risk. Its page "Request Frequency" leaves the
// back-off to Google Cloud's service level agreements ("Back-off Requirements"): at least a
// second after the first error, doubling up to 32. A quarter at most is added, so that
// clients do not come back together. Refusals, which do not heal within seconds, count as
// failures of list updates do, but by themselves: the errors before them came too fast.
func ServiceLevel(failures, refusals int, r float64) time.Duration {
	if refusals > 0 {
		return Backoff(refusals, r)
	}
	wait := serviceLevelUnit << min(max(failures, 1)-1, cappedServiceLevel)
	return wait + time.Duration(float64(wait)*r/4)
}

// firstContact draws how long the first request after a start or a wake-up waits:
// uniform in [0, 1 min) ("Request Frequency").
func firstContact() time.Duration { return rand.N(time.Minute) }
