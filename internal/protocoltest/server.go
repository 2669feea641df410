package protocoltest

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// Reporter is told about broken rules and about misuse of the Server. *testing.T
// is one.
type Reporter interface {
	Errorf(format string, args ...any)
}

// Server is a Safe Browsing and Web Risk server that reports every rule its client breaks.
// Make one with New. It is safe for concurrent use; the Reporter is called
// without any lock held. It judges one client: two clients with schedules of
// their own need two Servers.
type Server struct {
	reporter Reporter

	mu           sync.Mutex
	lists        map[string]*list
	owners       map[string]string         // version identifier -> list name, all ever served
	tokens       map[string]string         // the same for version tokens of Web Risk
	threats      map[string]*sbv5.FullHash // by raw hash bytes
	extended     map[string]bool           // likewise, see AddExtendedThreat
	loaded       map[string][]string       // list -> expressions put in by the last Load
	cacheFor     time.Duration             // cache_duration; negative: absent
	negativeFor  time.Duration             // negative_cache_duration; negative: absent
	waitFor      time.Duration             // minimum_wait_duration of lists that have none of their own
	rawRemovals  bool                      // see SetRawRemovals
	rawAdditions bool                      // see SetRawAdditions
	json         bool                      // answer in JSON though protobuf is asked for
	key          string                    // empty: no key wanted
	token        string                    // see SetToken; empty: no token wanted
	faults       []queuedFault             // oldest first
	requests     []*Request                // oldest first
	last         *exchange                 // the youngest one
	referee      *referee
	v4           serverV4
}

// New returns an empty Server whose complaints go to report.
func New(report Reporter) *Server {
	return &Server{
		reporter:    report,
		lists:       map[string]*list{},
		owners:      map[string]string{},
		tokens:      map[string]string{},
		threats:     map[string]*sbv5.FullHash{},
		extended:    map[string]bool{},
		loaded:      map[string][]string{},
		cacheFor:    300 * time.Second,
		negativeFor: 300 * time.Second,
		referee:     newReferee(),
	}
}

// locked runs f with the lock held and then reports what the referee objected to.
func (s *Server) locked(f func()) {
	var violations []string
	func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
		for _, text := range s.referee.takeViolations() {
			violations = append(violations, s.withoutSecrets(text))
		}
	}()
	for _, text := range violations {
		s.reporter.Errorf("%s", text)
	}
}

// withoutSecrets returns a text without the key and the token, which may be part of a
// name that the client sent.
func (s *Server) withoutSecrets(text string) string {
	for _, secret := range []string{s.key, s.token} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "[key]")
		}
	}
	return text
}

// Publish makes the next version of a list. Entries are hashes or prefixes of 4 to
// 32 bytes, in any order; duplicates are dropped. The entries are copied.
// v5 cannot serve a list that holds entries of other lengths than the suffix of its name
// says; a request of v5 for it is misuse, which is reported.
// Only Web Risk serves the list "se-ext-4b".
func (s *Server) Publish(name string, entries [][]byte) {
	if listWidth(name) == 0 {
		s.reporter.Errorf("protocoltest: publishing: list %q: the name must end in -4b, -8b, -16b or -32b", name)
		return
	}
	for _, e := range entries {
		if len(e) < minEntryBytes || len(e) > maxEntryBytes {
			s.reporter.Errorf("protocoltest: publishing: list %q: entry %x has %d bytes, want %d to %d", name, e, len(e), minEntryBytes, maxEntryBytes)
			return
		}
	}
	held := sorted(entries)
	s.locked(func() {
		l := s.list(name)
		v := l.newVersion(held)
		l.versions = append(l.versions, v)
		if s.referee.oneOfMany {
			s.owners[string(v.id)] = name
		}
	})
}

// list returns the list of that name, which it makes when there is none yet.
func (s *Server) list(name string) *list {
	l := s.lists[name]
	if l == nil {
		l = &list{name: name, wait: s.waitFor}
		s.lists[name] = l
	}
	return l
}

// SetMinimumWait sets the minimum_wait_duration that later answers for a list
// carry; 0, as at the start, leaves it out. In Web Risk recommended_next_diff is so
// much later than the answer. The empty name stands for all lists that are made later.
func (s *Server) SetMinimumWait(list string, d time.Duration) {
	s.locked(func() {
		if list == "" {
			s.waitFor = d
			return
		}
		s.list(list).wait = d
	})
}

// ForgetVersions makes the server forget all versions of a list served so far,
// so that the next answer is a full update.
func (s *Server) ForgetVersions(list string) {
	s.locked(func() {
		l := s.list(list)
		if len(l.versions) == 0 {
			return
		}
		l.versions = []version{l.newVersion(l.newest().entries)}
		l.steps = nil
	})
}

// OneOfMany tells the server, before the first Publish, that it is one of several with the
// same content. A version that it has published is then right even if another server has
// served it. Servers with the same sequence of calls of Publish have the same versions.
func (s *Server) OneOfMany() { s.locked(func() { s.referee.oneOfMany = true }) }

// SetKey makes the server demand this API key; a request without it gets status 403. The
// referee wants it in the header X-Goog-Api-Key. The empty key, as at the start, demands
// none. SetKey and SetToken replace each other.
func (s *Server) SetKey(key string) { s.locked(func() { s.key, s.token = key, "" }) }

// SetToken makes the server demand "Authorization: Bearer" with this access token
// instead of a key; a request without it gets status 401. A later token is one of the
// same account.
func (s *Server) SetToken(token string) { s.locked(func() { s.key, s.token = "", token }) }

// bearer begins the header Authorization of a request with an access token (RFC 6750).
const bearer = "Bearer "

// keyOf returns the key of a request. Google's servers take it as a parameter, too (Google
// Cloud, "System parameters"); the referee objects to that.
func keyOf(r *http.Request) string {
	return cmp.Or(r.Header.Get("X-Goog-Api-Key"), r.URL.Query().Get("key"))
}

// credential returns what identifies the client to the server, empty if nothing does.
func credential(r *http.Request) string {
	return cmp.Or(r.Header.Get("X-Goog-Api-Key"), r.Header.Get("Authorization"))
}

// AnswerJSON makes the server answer in JSON even when protobuf is asked for, as
// the discovery document's default could have it.
func (s *Server) AnswerJSON(on bool) { s.locked(func() { s.json = on }) }
