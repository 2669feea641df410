package relay

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// Bounds of a request. Version 5 bounds prefixes ("hashes.search") and updates
// ("SizeConstraints"); the others leave room for what clients send.
const (
	maxPrefixes     = 1000
	prefixBytes     = 4
	maxNames        = 100
	maxVersionBytes = 1 << 10

	// minUpdateEntries is the least max_update_entries (schema of version 5, SizeConstraints).
	minUpdateEntries = 1024
)

// query is what a request asks for.
type query struct {
	names      []string
	versions   [][]byte // of lists that the client holds, in any order
	maxUpdate  int      // most changes of an update, which is checked only: updates are sent whole
	maxEntries int      // most entries of a list; 0: no limit
	prefixes   [][]byte // distinct
	pageSize   int      // most lists of a page; 0: no limit
	pageToken  string
	stored     bool // the client takes entries as long as they are stored
	client     netip.Addr
	begin      func() // sends the header of a good answer, before the answer is there
}

// invalid returns the error of a request that breaks the rules of version 5.
func invalid(format string, args ...any) *failure {
	return &failure{code: http.StatusBadRequest, outcome: outcomeInvalid, message: fmt.Sprintf(format, args...)}
}

// systemParameters are parameters of every method of Google's servers ("System parameters"). Those
// besides alt and $req change nothing that a relay sends in alt=proto, and are ignored. $alt is
// another name of alt.
var systemParameters = []string{
	"alt", "key", "$req", "$ct", "$key", "access_token", "oauth_token", "callback", "$callback", "fields", "$fields",
	"prettyPrint", "$prettyPrint", "quotaUser", "$quotaUser", "userIp", "$userProject", "$.xgafv", "$xgafv", "$httpHeaders", "$outputDefaults",
}

// byJSONName returns the values of parameters by the names of fields that JSON has: Google's front
// end takes hash_prefixes for hashPrefixes, too.
func (m method) byJSONName(values url.Values) url.Values {
	all := make(url.Values, len(values))
	for name, given := range values {
		if name == "$alt" {
			name = "alt"
		} else if json := camelCase(name); slices.Contains(m.parameters, json) {
			name = json
		}
		all[name] = append(all[name], given...)
	}
	return all
}

// camelCase returns a name of fields with underscores as JSON spells it.
func camelCase(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words[1:] {
		if word != "" {
			words[i+1] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// parse reads the parameters of a method.
func (m method) parse(rawQuery string) (query, *failure) {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return query{}, invalid("the query of the URL cannot be parsed")
	}
	values = m.byJSONName(values)
	for name, given := range values {
		if !slices.Contains(m.parameters, name) && !slices.Contains(systemParameters, name) {
			return query{}, invalid("unknown parameter %q", name)
		}
		if len(given) > 1 && !slices.Contains([]string{"names", "version", "hashPrefixes"}, name) || len(given) > maxPrefixes {
			return query{}, invalid("%d times parameter %q", len(given), name)
		}
	}
	if alt := values.Get("alt"); alt != "" && alt != "proto" {
		return query{}, invalid("this relay answers in the form alt=proto only")
	}
	var q query
	var bad *failure
	if values.Has("$req") {
		q, bad = m.parseMessage(values.Get("$req"))
	} else {
		q, bad = parseValues(values)
	}
	if bad == nil {
		bad = q.check()
	}
	return q, bad
}

// parseValues reads parameters that have the names of fields.
func parseValues(values url.Values) (q query, bad *failure) {
	q.names, q.pageToken = values["names"], values.Get("pageToken")
	if q.versions, bad = decodeAll("version", values["version"]); bad != nil {
		return q, bad
	}
	if q.prefixes, bad = decodeAll("hashPrefixes", values["hashPrefixes"]); bad != nil {
		return q, bad
	}
	for name, n := range map[string]*int{
		"sizeConstraints.maxUpdateEntries":   &q.maxUpdate,
		"sizeConstraints.maxDatabaseEntries": &q.maxEntries,
		"pageSize":                           &q.pageSize,
	} {
		if text := values.Get(name); text != "" {
			number, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return q, invalid("%s is not a number", name)
			}
			*n = int(number)
		}
	}
	return q, nil
}

// decodeAll decodes base64 of either alphabet, with or without padding, as the JSON mapping
// of protobuf allows.
func decodeAll(name string, texts []string) (all [][]byte, bad *failure) {
	for _, text := range texts {
		raw, err := decode(text)
		if err != nil {
			return nil, invalid("%s is not base64", name)
		}
		all = append(all, raw)
	}
	return all, nil
}

func decode(text string) ([]byte, error) {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	return base64.RawStdEncoding.DecodeString(text)
}

// parseMessage reads the parameter $req, which browsers send: the request as a message.
func (m method) parseMessage(text string) (q query, bad *failure) {
	raw, err := decode(text)
	if err != nil {
		return q, invalid("$req is not base64")
	}
	if m.message == nil {
		return q, invalid("$req is not for this method")
	}
	message := m.message()
	if err := proto.Unmarshal(raw, message); err != nil {
		return q, invalid("$req is not a message of this method")
	}
	switch r := message.(type) {
	case *sbv5.SearchHashesRequest:
		q.prefixes = r.GetHashPrefixes()
	case *sbv5.BatchGetHashListsRequest:
		q.names, q.versions = r.GetNames(), r.GetVersion()
		q.maxUpdate, q.maxEntries = int(r.GetSizeConstraints().GetMaxUpdateEntries()), int(r.GetSizeConstraints().GetMaxDatabaseEntries())
	}
	return q, nil
}

// check returns what is wrong with a query of any method, and drops prefixes that are
// there more than once.
func (q *query) check() *failure {
	switch {
	case q.maxUpdate < 0 || q.maxEntries < 0 || q.pageSize < 0:
		return invalid("a number of entries or lists is negative")
	case len(q.names) > maxNames:
		return invalid("%d lists, at most %d are allowed", len(q.names), maxNames)
	case len(q.versions) > maxNames:
		return invalid("%d versions, at most %d are allowed", len(q.versions), maxNames)
	case q.maxUpdate > 0 && q.maxUpdate < minUpdateEntries:
		return invalid("maxUpdateEntries must be 0 or at least %d", minUpdateEntries)
	case len(q.prefixes) > maxPrefixes:
		return invalid("%d hash prefixes, at most %d are allowed", len(q.prefixes), maxPrefixes)
	}
	for i, name := range q.names {
		if slices.Contains(q.names[:i], name) {
			return invalid("list %q is there more than once", shorten(name))
		}
	}
	for _, v := range q.versions {
		if len(v) > maxVersionBytes {
			return invalid("a version of %d bytes, at most %d are allowed", len(v), maxVersionBytes)
		}
	}
	for _, p := range q.prefixes {
		if len(p) != prefixBytes {
			return invalid("a hash prefix of %d bytes, only %d are allowed", len(p), prefixBytes)
		}
	}
	slices.SortFunc(q.prefixes, slices.Compare)
	q.prefixes = slices.CompactFunc(q.prefixes, slices.Equal)
	return nil
}

// shorten returns the beginning of what a client sent, for an error.
func shorten(text string) string { return text[:min(len(text), math.MaxUint8/4)] }
