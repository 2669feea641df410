package ownlist

import (
	"cmp"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const (
	// maxSpread is the most that is added to the wait before the first fetch after a start, if
	// a good content is in force: many machines may start at once. It also keeps processes
	// with one db from fetching at the same time: the first one saves a state for the others.
	maxSpread = time.Minute
	// minPause is the least between two attempts, over restarts too: a loop of crashes must
	// not become a loop of requests.
	minPause = time.Minute
	// firstPause is the wait after the first attempt that reached no server.
	firstPause = 15 * time.Second
	// maxRetryAfter is the longest wait that a server can ask for.
	maxRetryAfter = 24 * time.Hour
)

// refreshAfter returns how long to wait after a success: refresh ± 30 %. r is uniform in
// [0, 1).
func refreshAfter(refresh time.Duration, r float64) time.Duration {
	refresh = cmp.Or(refresh, DefaultRefresh)
	return time.Duration(float64(refresh) * (0.7 + 0.6*r))
}

// retryAfter returns how long to wait after failures in a row, at least one. It is the
// back-off of lists of the server. While nothing is in force and no server has answered,
// it begins at firstPause: at a boot the network is often late. asked is what the server
// asked for, or 0. r is uniform in [0, 1).
func retryAfter(failures int, answered, inForce bool, asked time.Duration, r float64) time.Duration {
	wait := updater.Backoff(failures, r)
	if !answered && !inForce && failures <= 7 {
		wait = min(wait, time.Duration(float64(firstPause<<(failures-1))*(r+1)))
	}
	return max(wait, min(asked, maxRetryAfter))
}

// firstDue returns when a list is fetched first after a start. r is uniform in [0, 1).
func firstDue(s URLState, refresh time.Duration, now time.Time, r float64) time.Time {
	inForce := !s.Changed.IsZero()
	if inForce {
		return later(due(s, refresh, now), now).Add(time.Duration(r * float64(maxSpread)))
	}
	if s.Tried.After(now) { // the clock was wrong
		return now
	}
	return later(now, s.Tried.Add(minPause))
}

// due returns when the next attempt is due. It is not later than the settings of now allow:
// they, and the clock, may have changed.
func due(s URLState, refresh time.Duration, now time.Time) time.Time {
	if s.Tried.After(now) {
		return now
	}
	if s.Failures == 0 {
		if latest := s.Checked.Add(refreshAfter(refresh, 1)); s.Next.After(latest) {
			return earlier(s.Next, later(latest, s.Tried.Add(minPause))) // an attempt may be under way
		}
	}
	if latest := s.Tried.Add(maxRetryAfter); s.Failures > 0 && s.Next.After(latest) {
		return latest
	}
	return s.Next
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
