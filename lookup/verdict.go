package lookup

import (
	"time"
)

// Verdict is the answer about a host. The zero Verdict is Safe.
type Verdict uint8

// The verdicts. Unsure means that a host is suspected, but the server has not confirmed
// it in time. Such a host is not blocked: a block never rests on a guess.
const (
	Safe Verdict = iota
	Unsafe
	Unsure
)

// String returns the verdict as metrics, metadata and logs spell it.
func (v Verdict) String() string { return [...]string{"safe", "unsafe", "unsure"}[v] }

// Threat is the kind of danger of an unsafe host. The zero Threat is NoThreat.
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

// AllThreats holds every Threat of this package.
const AllThreats Threats = 1<<Malware | 1<<SocialEngineering | 1<<UnwantedSoftware | 1<<PotentiallyHarmfulApplication

// With returns the set with t added.
func (s Threats) With(t Threat) Threats { return s | 1<<t }

// Contains reports whether t is in the set.
func (s Threats) Contains(t Threat) bool { return s&(1<<t) != 0 }

// split returns the first threat of the set in the order of the constants, or NoThreat, and the
// others.
func (s Threats) split() (first Threat, others Threats) {
	for t := Malware; t < numThreats; t++ {
		if s.Contains(t) {
			return t, s &^ (1 << t)
		}
	}
	return NoThreat, s
}

// Decider says which part of the plugin made a decision.
type Decider uint8

// The deciders. A clean host is ByList. A host that was not looked up, such as a private
// name, is ByNobody.
const (
	ByNobody Decider = iota
	ByList
	ByCache
	ByServer
	ByBlock
	ByAllow
	ByLimiter   // too many confirmations at once
	ByBackoff   // the server must not be asked now
	ByBudget    // the searches of the day are spent
	ByTimeout   // the confirmation came too late
	ByError     // the confirmation failed
	NumDeciders // the number of deciders
)

// String returns the decider as metrics, metadata and logs spell it.
func (d Decider) String() string {
	return [...]string{
		"nobody", "list", "cache", "server", "block", "allow", "limiter", "backoff", "budget", "timeout", "error",
	}[d]
}

// Response is how a query for an Unsafe host is answered.
type Response uint8

// The responses. NXDOMAIN is the default, and in an own list it leaves the response to the
// Corefile. If a list names a host twice, the greater one counts.
const (
	NXDOMAIN Response = iota
	NODATA
	Refused
	Sinkhole // with addresses that the operator gives
	NoAnswer // the query is dropped; only in an own list
)

// Decision is a verdict with its reasons. The zero Decision is Safe and ByNobody.
type Decision struct {
	Verdict    Verdict
	By         Decider
	Threat     Threat    // of an Unsafe host; NoThreat if an own list decided
	Also       Threats   // that the same expression is listed for, besides Threat
	Response   Response  // that an own list wants for an Unsafe host; NXDOMAIN: none
	List       string    // the list that matched; of an own list the file or URL
	Expression string    // the expression that matched, or ""
	Expires    time.Time // when an Unsafe verdict expires; zero: never
	FrameOnly  bool      // the threat of an Unsafe host is marked FRAME_ONLY
	Err        error     // why the confirmation failed, or nil
}

// Threats returns all threats that an Unsafe host is listed for, in the order of the constants.
func (d Decision) Threats() (all []Threat) {
	for t := Malware; t < numThreats; t++ {
		if t == d.Threat || d.Also.Contains(t) {
			all = append(all, t)
		}
	}
	return all
}

// Graver reports whether d outranks other. Unsafe outranks Unsure, and Unsure outranks
// Safe. An Unsure decision about a host in a list outranks one about a host in no list.
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

// Mode says about which hosts a Checker asks the server.
type Mode uint8

const (
	// Local asks about a host that is in a threat list ("Local List Mode").
	Local Mode = iota
	// RealTime asks about every host that is not in a list of likely safe hosts.
	// Those it treats as Local does ("Real-Time Mode"). Without such lists, or while
	// they have fewer than 100 entries, it treats every host as Local does.
	RealTime
	// NoStorage asks about every host ("No-Storage Real-Time Mode").
	NoStorage
)

// String returns the mode as the Corefile spells it.
func (m Mode) String() string { return [...]string{"local", "realtime", "nostorage"}[m] }
