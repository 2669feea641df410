package safebrowsing

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/policy"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// loudness logs what may be a mistake of Safe Browsing: that it blocks a name which was
// asked for often, or suddenly blocks much more than before. It unblocks nothing: an
// attacker would make use of that. It is of the process, so that a reload forgets nothing.
// It is safe for concurrent use.
type loudness struct {
	familiar *familiarity
	names    dayLog

	mu   sync.Mutex
	rate blockRate // guarded by mu
}

var loud = &loudness{familiar: newFamiliarity(time.Now())}

// allowing says how to let a name pass. A shell must not take what a client has put into the
// name for commands: then there is no command to copy.
func allowing(name string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	if strings.Trim(name, plain) != "" || strings.HasPrefix(name, "-") {
		return "add the host to a file of allow"
	}
	return "safebrowsing allow -for 1d " + name
}

// blocked notes that a name is blocked.
func (l *loudness) blocked(q dns.Question, d lookup.Decision, now time.Time) {
	if policy.IsOwn(d) {
		return
	}
	name := strings.TrimSuffix(q.Name, ".")
	perHour := l.familiar.perHour(lookup.FromQname(q.Name), now)
	if perHour >= familiarRate && l.names.first(q.Name, now) {
		log.Warningf("%s is blocked now (suspected %s, list %s), and was asked for about %d times an hour before. "+
			"If this is a mistake: %s", name, d.Threat, d.List, perHour, allowing(name))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.rate
	l.rate = before.blocked(now)
	if l.rate.jumped && !before.jumped {
		log.Warningf("Blocking has jumped: %d answers in %v, and a mean of %.1f in the day before; the last name was %s (suspected %s, list %s). "+
			"If this is a mistake: safebrowsing allow HOST for a name, or safebrowsing pause 10m for all", l.rate.count, rateInterval, l.rate.mean, name, d.Threat, d.List)
		time.AfterFunc(rateInterval, l.settle)
	}
}

// settle logs that a jump is over. While it is not, it looks again after an interval.
func (l *loudness) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate = l.rate.at(time.Now())
	if l.rate.jumped {
		time.AfterFunc(rateInterval, l.settle)
		return
	}
	log.Infof("The jump of blocking is over: %d answers in %v", l.rate.last, rateInterval)
}

const (
	rateInterval  = 10 * time.Minute
	rateDay       = 144 // intervals that the mean is of
	rateWarmUp    = 6   // intervals to learn before there can be a jump
	rateThreshold = 5   // a jump is so many deviations above the mean, and so many times the mean
	rateLeast     = 100 // blocked answers in an interval, for a jump
)

// blockRate learns how many answers are blocked in an interval: the mean and the variance
// of about a day, as exponential moving averages. Its methods are pure. The zero value
// has seen nothing.
type blockRate struct {
	begin          time.Time // of the current interval
	count, last    int       // blocked in the current and in the last interval
	mean, variance float64   // of the intervals before
	learnt         int       // intervals, up to rateDay
	jumped         bool
}

// blocked returns the rate after one more blocked answer.
func (r blockRate) blocked(now time.Time) blockRate {
	r = r.at(now)
	r.count++
	r.jumped = r.jumped || r.isJump(r.count)
	return r
}

// at returns the rate at a time: it learns the intervals that have ended.
func (r blockRate) at(now time.Time) blockRate {
	if r.begin.IsZero() || now.Before(r.begin) { // the clock was set back
		r.begin = now
	}
	for ended := 0; now.Sub(r.begin) >= rateInterval; ended++ {
		if ended > 1000 { // a week without a blocked answer
			r.begin, r.mean, r.variance = now, 0, 0
			break
		}
		r.begin = r.begin.Add(rateInterval)
		r = r.learn()
	}
	return r
}

// learn ends the current interval.
func (r blockRate) learn() blockRate {
	r.jumped = r.jumped && r.isJump(r.count)
	r.learnt = min(r.learnt+1, rateDay)
	weight := 1 / float64(r.learnt)
	if r.jumped { // slowly: what is normal is not learnt from an exception
		weight = 1.0 / rateDay
	}
	difference := float64(r.count) - r.mean
	r.mean += weight * difference
	r.variance = (1 - weight) * (r.variance + weight*difference*difference)
	r.last, r.count = r.count, 0
	return r
}

// isJump reports whether a count of an interval is far above the mean.
func (r blockRate) isJump(count int) bool {
	n := float64(count)
	return r.learnt >= rateWarmUp && count >= rateLeast &&
		n > rateThreshold*r.mean && n > r.mean+rateThreshold*math.Sqrt(r.variance)
}
