package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// A request for a list waits while the relay fetches its first ones: a failure costs the client
// a back-off of at least 15 minutes, without any list.
const (
	// maxHeaderWait is when the header of the answer is sent, although the list is not
	// there yet. After 30 seconds without one a client gives up.
	maxHeaderWait = 25 * time.Second
	// maxListWait is when the relay gives up: after the first contact, which it makes
	// within a minute, and the time of a fetch.
	maxListWait = 100 * time.Second
)

// notYet is how long a client waits that came before the lists.
const notYet = time.Minute

// batchGet answers hashLists.batchGet: the lists in the order of the request.
func (h *handler) batchGet(r *http.Request, _ netip.Addr, q query) (reply, *failure) {
	if len(q.names) == 0 {
		return reply{}, invalid("no parameter names")
	}
	versions, bad := versionsOf(q)
	if bad != nil {
		return reply{}, bad
	}
	var answers []Answer
	for _, name := range q.names {
		answer, bad := h.list(r, name, versions[name], q)
		if bad != nil {
			return reply{}, bad
		}
		answers = append(answers, answer)
	}
	return reply{parts: BatchBody(answers, MinimumWait(rand.Float64()))}, nil
}

// versionsOf returns the versions that a client holds, by the names of their lists. A batch
// does not say which is whose. Others count for nothing: the client came from another server.
func versionsOf(q query) (map[string][]byte, *failure) {
	byTag := make(map[string]string)
	for _, name := range q.names {
		byTag[string(tagOf(name))], byTag[string(tagOf(formOf(name, true)))] = name, name
	}
	versions := make(map[string][]byte)
	for _, v := range q.versions {
		name, ours := byTag[string(v[:min(len(v), tagBytes)])]
		switch {
		case !ours:
		case versions[name] != nil:
			return nil, invalid("two versions of list %q", shorten(name))
		default:
			versions[name] = v
		}
	}
	return versions, nil
}

// get answers hashList.get.
func (h *handler) get(r *http.Request, q query) (reply, *failure) {
	if len(q.versions) > 1 {
		return reply{}, invalid("there are more versions than lists")
	}
	var version []byte
	if len(q.versions) == 1 {
		version = q.versions[0]
	}
	answer, bad := h.list(r, q.names[0], version, q)
	if bad != nil {
		return reply{}, bad
	}
	return reply{parts: answer.Body(MinimumWait(rand.Float64()))}, nil
}

// list returns the update of a list. A client that holds a list which the relay has lost keeps
// it. One that holds nothing waits for a while, if the relay is still fetching its first lists.
func (h *handler) list(r *http.Request, name string, version []byte, q query) (Answer, *failure) {
	answer, err := h.lists.Get(r.Context(), q.client, name, q.stored, version, q.maxEntries)
	kept := slices.Contains(h.configured, name)
	switch {
	case !errors.Is(err, ErrUnknownList) || !kept:
	case bytes.HasPrefix(version, tagOf(name)), bytes.HasPrefix(version, tagOf(formOf(name, true))):
		return unchanged(name, version), nil
	case !h.fetched():
		leave, ok := h.starting.Take(q.client, "")
		if !ok {
			return Answer{}, &failure{code: http.StatusServiceUnavailable, outcome: outcomeLimited, message: "too many requests wait for the first lists", retryAfter: notYet}
		}
		h.awaitFirst(r.Context(), q.begin)
		leave()
		answer, err = h.lists.Get(r.Context(), q.client, name, q.stored, version, q.maxEntries)
	}
	switch {
	case err == nil:
		return answer, nil
	case r.Context().Err() != nil:
		return Answer{}, &failure{code: http.StatusServiceUnavailable, outcome: outcomeCancelled, message: "the client has gone away"}
	case !errors.Is(err, ErrUnknownList):
		log.Errorf("Cannot serve list %q: %v", shorten(name), err)
		return Answer{}, &failure{code: http.StatusInternalServerError, outcome: outcomeUnavailable, message: "the relay cannot encode the list"}
	case kept && !h.ready():
		return Answer{}, &failure{code: http.StatusServiceUnavailable, outcome: outcomeUnavailable, message: "the relay has not fetched list " + name + " yet", retryAfter: notYet}
	}
	lacks := &failure{code: http.StatusNotFound, outcome: outcomeInvalid, lists: strings.Join(h.lists.Names(), " ")}
	has := strings.Join(h.lists.Names(), ", ")
	if kept { // a status for this list only: the client gets the others
		lacks.outcome, lacks.message = outcomeUnavailable, fmt.Sprintf("this relay has not fetched list %s yet, see its log: it has %s", name, has)
		return Answer{}, lacks
	}
	h.lacking.noteList(name, addressOf(r), h.lists.Names(), time.Now())
	lacks.message = fmt.Sprintf("this relay does not have list %q: it has %s", shorten(name), has)
	return Answer{}, lacks
}

// awaitFirst waits for the first lists. It calls begin when the header must be sent.
func (h *handler) awaitFirst(ctx context.Context, begin func()) {
	header, timeout := time.NewTimer(maxHeaderWait), time.NewTimer(maxListWait)
	defer header.Stop()
	defer timeout.Stop()
	for {
		select {
		case <-header.C:
			begin()
			continue
		case <-h.first:
		case <-timeout.C:
		case <-h.stopping:
		case <-ctx.Done():
		}
		return
	}
}

// fetched reports whether the first contact with the server has ended, or all lists were on
// disk.
func (h *handler) fetched() bool {
	select {
	case <-h.first:
		return true
	default:
		return false
	}
}

// complete reports whether all lists are in force. If one is missing, a client may hold it
// all the same: that a prefix is in none of the lists here means nothing then.
func (h *handler) complete() bool { return len(h.lists.Names()) == len(h.configured) }

// ready reports whether lists are in force, all of them if they can be had. Once clients get all
// lists, their searches are answered: the first contact ends a moment later.
func (h *handler) ready() bool { return h.complete() || h.fetched() && h.lists.Ready() }

// listAll answers hashLists.list: lists without their content, at most pageSize of them. The
// token of a page is the name of its first list.
func (h *handler) listAll(_ *http.Request, _ netip.Addr, q query) (reply, *failure) {
	if !h.ready() { // a client would take it that there are none
		why := "the relay has no lists yet: it fetches them within a minute of its start"
		if h.fetched() {
			why = "the relay has no lists: see its log"
		}
		return reply{}, &failure{code: http.StatusServiceUnavailable, outcome: outcomeUnavailable, message: why, retryAfter: notYet}
	}
	var answer sbv5.ListHashListsResponse
	names := h.lists.Names()
	if q.pageToken != "" {
		i := slices.Index(names, q.pageToken)
		if i < 0 {
			return reply{}, invalid("there is no such page")
		}
		names = names[i:]
	}
	if q.pageSize > 0 && q.pageSize < len(names) {
		names, answer.NextPageToken = names[:q.pageSize], names[q.pageSize]
	}
	for _, name := range names {
		answer.HashLists = append(answer.HashLists, &sbv5.HashList{Name: name, Metadata: metadataOf(name)})
	}
	return encoded(&answer)
}

// encoded returns a message as a reply.
func encoded(m proto.Message) (reply, *failure) {
	raw, err := proto.Marshal(m)
	if err != nil {
		log.Errorf("Cannot encode an answer: %v", err)
		return reply{}, &failure{code: http.StatusInternalServerError, outcome: outcomeUnavailable, message: "the relay cannot encode its answer"}
	}
	return reply{parts: [][]byte{raw}, compress: true}, nil
}

// metadataOf describes a list. Those that Google does not document have no threats.
func metadataOf(name string) *sbv5.HashListMetadata {
	m := new(sbv5.HashListMetadata)
	base, _, _ := strings.Cut(name, "-")
	switch base {
	case "se":
		m.ThreatTypes = []sbv5.ThreatType{sbv5.ThreatType_SOCIAL_ENGINEERING}
	case "mw":
		m.ThreatTypes = []sbv5.ThreatType{sbv5.ThreatType_MALWARE}
	case "uws", "uwsa":
		m.ThreatTypes = []sbv5.ThreatType{sbv5.ThreatType_UNWANTED_SOFTWARE}
	case "pha":
		m.ThreatTypes = []sbv5.ThreatType{sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION}
	case "gc":
		m.LikelySafeTypes = []sbv5.LikelySafeType{sbv5.LikelySafeType_GENERAL_BROWSING}
	}
	width, err := updater.Width(name)
	if err == nil {
		m.HashLength = map[int]sbv5.HashListMetadata_HashLength{
			4: sbv5.HashListMetadata_FOUR_BYTES, 8: sbv5.HashListMetadata_EIGHT_BYTES,
			16: sbv5.HashListMetadata_SIXTEEN_BYTES, 32: sbv5.HashListMetadata_THIRTY_TWO_BYTES,
		}[width]
	}
	return m
}

// lacking logs what clients want and this relay does not give them: each thing once a day. The
// zero value is ready to use; it is safe for concurrent use.
type lacking struct {
	said say.Daily // lists, and "" for searches

	mu               sync.Mutex
	day              string
	listed, unlisted int // prefixes that clients have searched for on the day: in a list, in none
}

const (
	// Clients whose lists are older than the relay's search for a few prefixes that are in no
	// list any more. Clients without lists hardly search for others.
	manyUnlisted  = 100
	unlistedTimes = 4 // as many as listed ones
)

// noteList notes that a client asks for a list that the relay does not have.
func (l *lacking) noteList(name string, client netip.Addr, has []string, now time.Time) {
	if !l.said.First(name, now) {
		return
	}
	advice := "Name it with -lists here, or remove it there"
	if name == protocol.GlobalCache {
		advice = "The client's mode realtime acts as mode local: start the relay with -realtime, or write mode local there"
	}
	log.Warningf("Client %s asks for list %q, and this relay has %s only. %s. This is logged once a day", client, shorten(name), strings.Join(has, ", "), advice)
}

// noteSearch notes where the answers to a client's search came from.
func (l *lacking) noteSearch(answers []lookup.PrefixAnswer, client netip.Addr, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if day := now.Format(time.DateOnly); l.day != day {
		l.day, l.listed, l.unlisted = day, 0, 0
	}
	for _, a := range answers {
		switch {
		case a.Err != nil: // not answered
		case a.From == lookup.FromLists:
			l.unlisted++
		default:
			l.listed++
		}
	}
	if l.unlisted < manyUnlisted || l.unlisted < unlistedTimes*l.listed || !l.said.First("", now) {
		return
	}
	log.Warningf("%d of today's %d prefixes that clients asked about are in no list, the last ones of %s. Clients in mode nostorage or realtime ask so, and without -realtime this relay confirms only what its own lists hold: "+
		"start it with -realtime, or write mode local there. This is logged once a day", l.unlisted, l.unlisted+l.listed, client)
}
