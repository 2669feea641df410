package lookup

import "time"

// Verdict is the answer about a host. The zero Verdict is Safe.
type Verdict uint8

// The verdicts. Unsure is a host that is suspected, but could not be confirmed
// in time: it is not blocked on a guess.
const (
	Safe Verdict = iota
	Unsafe
	Unsure
)

// String returns the verdict as metrics, metadata and logs spell it.
func (v Verdict) String() string { return [...]string{"safe", "unsafe", "unsure"}[v] }

// Threat is why a host is unsafe. The zero Threat is none.
type Threat uint8

// The threats that Safe Browsing publishes.
const (
	NoThreat Threat = iota
	Malware
	SocialEngineering
	UnwantedSoftware
	PotentiallyHarmfulApplication
	numThreats
)

// String returns the threat in words.
func (t Threat) String() string {
	return [...]string{
		"", "malware", "social engineering", "unwanted software", "potentially harmful application",
	}[t]
}

// Threats is a set of threats. The zero Threats is empty.
type Threats uint8

// AllThreats is every threat that there is a name for.
const AllThreats Threats = 1<<Malware | 1<<SocialEngineering | 1<<UnwantedSoftware | 1<<PotentiallyHarmfulApplication

// With returns the set with t added.
func (s Threats) With(t Threat) Threats { return s | 1<<t }

// Contains reports whether t is in the set.
func (s Threats) Contains(t Threat) bool { return s&(1<<t) != 0 }

// first returns the least threat of the set, or NoThreat.
func (s Threats) first() Threat {
	for t := Malware; t < numThreats; t++ {
		if s.Contains(t) {
			return t
		}
	}
	return NoThreat
}

// Frames is what becomes of threats that the server marks FRAME_ONLY: they are for
// content in frames, of which the page itself is one, not for what it loads. A name
// server cannot tell these apart. The zero Frames blocks.
type Frames uint8

const (
	// BlockFrames treats them like all other threats.
	BlockFrames Frames = iota
	// PassFrames treats them as none.
	PassFrames
)

// Decider is who decided a verdict.
type Decider uint8

// The deciders. A host that is never looked up (a private name) is decided by
// nobody; a clean one by the lists.
const (
	ByNobody Decider = iota
	ByList
	ByCache
	ByServer
	ByBlock
	ByAllow
	ByTest    // a name that the operator named to try things with
	ByLimiter // too many confirmations at once
	ByBackoff // the server asked to be left alone for a while
	ByTimeout // the confirmation came too late
	ByError   // the confirmation failed
	NumDeciders
)

// String returns the decider as metrics, metadata and logs spell it.
func (d Decider) String() string {
	return [...]string{
		"nobody", "list", "cache", "server", "block", "allow", "test", "limiter", "backoff", "timeout", "error",
	}[d]
}

// Decision is a verdict with all that led to it. The zero Decision is Safe,
// decided by nobody.
type Decision struct {
	Verdict    Verdict
	By         Decider
	Threat     Threat    // of an Unsafe host, unless an own list decided
	Answer     uint8     // how an own list wants an Unsafe host answered; only carried here
	List       string    // the list that was matched; for an own list its file
	Expression string    // the expression that matched, or ""
	Expires    time.Time // until when an Unsafe verdict holds; zero: without end
	FrameOnly  bool      // the threat is marked FRAME_ONLY; if the host is not Unsafe, such a threat has passed
	Err        error     // why a host is Unsure, if there was an error
}

// Graver reports whether d says more against a host than other: Unsafe more than
// Unsure, that more than Safe, and what is Unsure for a list more than what is so
// for being late.
func (d Decision) Graver(other Decision) bool {
	rank := func(d Decision) int {
		switch {
		case d.Verdict == Unsafe:
			return 3
		case d.Verdict == Unsure && d.List != "":
			return 2
		case d.Verdict == Unsure:
			return 1
		}
		return 0
	}
	return rank(d) > rank(other)
}
