package safebrowsing

import (
	"cmp"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// nameLog logs names that are blocked, or would be in monitor mode: ten lines a
// second after a burst of twenty. It also logs how many names it left out. The zero value is
// ready to use; it is safe for concurrent use.
type nameLog struct {
	monitor bool // immutable
	json    bool // immutable: one JSON object a line, see nameLine
	mu      sync.Mutex
	level   lookup.Level
	left    int // names left out since the last line
}

// nameLine is a line of the JSON form. Programs read it: fields are added, but none is
// renamed or removed.
type nameLine struct {
	Time       time.Time `json:"time"`  // RFC 3339, in UTC
	Event      string    `json:"event"` // blocked, would_block or left_out
	Client     string    `json:"client,omitempty"`
	Name       string    `json:"name,omitempty"` // in presentation form (RFC 1035 section 5.1), with its final dot
	Type       string    `json:"type,omitempty"`
	Cause      string    `json:"cause,omitempty"`
	Threat     string    `json:"threat,omitempty"`
	Expression string    `json:"expression,omitempty"`
	List       string    `json:"list,omitempty"`
	DecidedBy  string    `json:"decided_by,omitempty"`
	Allow      string    `json:"allow,omitempty"`    // the command that lets the name pass for an hour
	Report     string    `json:"report,omitempty"`   // where to report that this is a mistake
	LeftOut    int       `json:"left_out,omitempty"` // names without a line of their own
}

// log logs that the query of a client is blocked, or in monitor mode would be.
// allow and report are what to do if this is a mistake, see block.Block.Mistake.
func (l *nameLog) log(client string, q dns.Question, d lookup.Decision, cause, allow, report string, now time.Time) {
	l.mu.Lock()
	level, admitted := lookup.LeakyBucket{Rate: 10, Capacity: 20}.Admit(l.level, now)
	l.level = level
	left := l.left
	if l.left++; admitted {
		l.left = 0
	}
	l.mu.Unlock()
	if !admitted {
		return
	}
	l.logLeft(left, now)
	if l.json {
		event := "blocked"
		if l.monitor {
			event = "would_block"
		}
		log.JSON(nameLine{
			Time: now.UTC(), Event: event, Client: client, Name: q.Name, Type: dns.Type(q.Qtype).String(), Cause: cause,
			Threat: d.Threat.String(), Expression: d.Expression, List: d.List, DecidedBy: d.By.String(), Allow: allow, Report: report,
		})
		return
	}
	format := "Blocked %s %s for %s: %s, expression %s, list %s, decided by %s"
	if l.monitor {
		format = "Monitor: %s %s for %s would be blocked: %s, expression %s, list %s, decided by %s"
	}
	mistake := ""
	if allow != "" {
		mistake = ". A mistake? " + allow
	}
	if report != "" {
		mistake += ", report it at " + report
		if allow == "" {
			mistake = ". A mistake? Report it at " + report
		}
	}
	log.Infof(format+"%s", q.Name, dns.Type(q.Qtype), client, cause, d.Expression, cmp.Or(d.List, "none"), d.By, mistake)
}

// end logs how many names were left out since the last line.
func (l *nameLog) end(now time.Time) {
	l.mu.Lock()
	left := l.left
	l.left = 0
	l.mu.Unlock()
	l.logLeft(left, now)
}

func (l *nameLog) logLeft(left int, now time.Time) {
	names := say.Plural(left, "name", "names")
	switch {
	case left == 0:
	case l.json:
		log.JSON(nameLine{Time: now.UTC(), Event: "left_out", LeftOut: left})
	case l.monitor:
		log.Infof("Monitor: %d more %s would have been blocked; the log takes ten lines a second", left, names)
	default:
		log.Infof("Blocked %d more %s; the log takes ten lines a second", left, names)
	}
}
