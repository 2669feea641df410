package block

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/ownlist"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Needed holds the names that this server or its clients cannot do without, each with what
// it is. Safe Browsing and lists by URL do not block them, the operator's own files may.
// Google's lists and published ones have held such names by mistake. The map has canonical names, without a final dot. It must
// not be changed while it is in use.
type Needed map[string]string

// poolZone is the zone of the NTP pool. Distributions have names of their own below it:
// https://www.ntppool.org/en/vendors.html.
const poolZone = "pool.ntp.org"

const timeServer = "a time server: DNSSEC and TLS need the clock"

// timeServers are those that operating systems ask unless told otherwise, and the large
// public ones.
var timeServers = []string{
	poolZone,
	"time.google.com", "time1.google.com", "time2.google.com", "time3.google.com", "time4.google.com", // https://developers.google.com/time
	"time.android.com",    // https://source.android.com/docs/core/connect/time/network-time-detection
	"time.cloudflare.com", // https://www.cloudflare.com/time/
	"time.windows.com",    // https://learn.microsoft.com/windows-server/networking/windows-time-service/
	"time.apple.com",      // https://support.apple.com/guide/mac-help/mchlp2996/mac
	"ntp.ubuntu.com",      // https://documentation.ubuntu.com/server/how-to/networking/timedatectl-and-timesyncd/
	"time.nist.gov",       // https://www.nist.gov/pml/time-and-frequency-division/time-distribution/internet-time-service-its
}

// NeededBy returns the needed names of the server blocks of a Corefile: the hosts of their
// endpoints and of their lists by URL, the proxies on the way to these, the time servers, and
// the names of the targets of forwarding.
func NeededBy(all []*Block, targets []string) Needed {
	n := make(Needed)
	add := func(name, what string) {
		if h, ok := lookup.ParseHost(name); ok {
			n[h.String()] = what
		}
	}
	addURL := func(text, what string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		if proxy, err := http.ProxyFromEnvironment(&http.Request{URL: u}); err == nil && proxy != nil {
			add(proxy.Hostname(), "the proxy")
		}
		add(u.Hostname(), what)
	}
	for _, name := range timeServers {
		add(name, timeServer)
	}
	for _, name := range targets {
		add(name, "a server that this server forwards queries to")
	}
	for _, b := range all {
		for _, own := range b.Config.Own {
			addURL(own.Fetch.URL, "the host of a list by URL")
		}
	}
	for _, b := range all {
		if !b.Config.Online {
			continue
		}
		for _, endpoint := range b.Settings.Endpoints() {
			addURL(endpoint, "the host of the endpoint")
		}
	}
	return n
}

// What returns what a host is needed for, or "".
func (n Needed) What(h lookup.Host) string {
	name := h.String()
	if what := n[name]; what != "" {
		return what
	}
	if strings.HasSuffix(name, "."+poolZone) {
		return n[poolZone]
	}
	return ""
}

// neededList is the name, as a list, of the names that Need names.
const neededList = "needed"

// Need tells the block, before Start or Read, which names neither Safe Browsing nor a list by URL may block.
func (b *Block) Need(n Needed) { b.needed = n }

// spare returns what becomes of a decision of Safe Browsing about a needed host: it is safe.
// It logs, once a day, that the host would have been blocked.
func (b *Block) spare(h lookup.Host, d lookup.Decision, what string) lookup.Decision {
	if d.Verdict == lookup.Safe {
		return d
	}
	if d.Verdict == lookup.Unsafe && b.spared.First(h.String(), time.Now()) {
		log.Warningf("%s. passes, although %s lists it (%s, list %s): it is %s. If you want to block it all the same, add it to a list of block", h, b.Reply().Service, d.Threat, cmp.Or(d.List, "none"), what)
	}
	return lookup.Decision{By: lookup.ByAllow, List: neededList}
}

// NeededNames are the needed names that an own list would block.
type NeededNames struct {
	Names []string // "lists.example.org (line 3), the host of a list by URL", sorted
	Pass  bool     // the list is one by URL: the names pass
}

// maxNamed is the most names that String gives.
const maxNamed = 5

// String says what becomes of the names, or returns "" if there are none.
func (n NeededNames) String() string {
	if len(n.Names) == 0 {
		return ""
	}
	text := strings.Join(n.Names[:min(len(n.Names), maxNamed)], "; ")
	if more := len(n.Names) - maxNamed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	count := say.Count(len(n.Names), "name", "names")
	if n.Pass {
		return count + " that it has pass, because this server needs them: " + text
	}
	return "it blocks " + count + " that this server needs: " + text
}

// Advice says what the operator can do.
func (n NeededNames) Advice() string {
	if n.Pass {
		return "a file of block blocks them all the same, if you want that"
	}
	return "remove them from the list, or name them after allow, unless you want that"
}

// BlocksNeeded returns the needed names that a list has, by its name in decisions. Names that
// the operator allows are not among them, nor names of a file that another entry overrules.
// It reads a list of up to 32 MiB again for each of the first five names, for their lines.
func (b *Block) BlocksNeeded(list string) (n NeededNames) {
	lists := b.own.Load()
	if lists == nil {
		return n
	}
	i := slices.IndexFunc(lists.files, func(f *ownlist.File) bool { s := f.State(); return s.Named == list && !s.Allow })
	if i < 0 {
		return n
	}
	n.Pass = lists.files[i].State().Fetched
	for _, host := range slices.Sorted(maps.Keys(b.needed)) {
		h, ok := lookup.ParseHost(host)
		m, found := lists.files[i].Match(h, time.Now())
		if !ok || !found || m.Allow {
			continue
		}
		if best, _ := ownlist.Best(lists.files, h, time.Now()); best.Allow {
			continue
		}
		text := h.String()
		if len(n.Names) < maxNamed {
			if line := lineIn(lists.configs[which{list, false}], h, ""); line > 0 {
				text += fmt.Sprintf(" (line %d)", line)
			}
		}
		n.Names = append(n.Names, text+", "+b.needed[host])
	}
	return n
}

// reportNeeded logs which needed names a list has.
func (b *Block) reportNeeded(list string) {
	if n := b.BlocksNeeded(list); len(n.Names) > 0 {
		log.Warningf("List %s: %s; %s", list, n, n.Advice())
	}
}
