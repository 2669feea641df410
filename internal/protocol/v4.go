package protocol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv4"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// V4 speaks version 4 of the protocol, the Update API. It implements Client.
//
//	updater ──Fetch──▶ threatListUpdates:fetch ──▶ ThreatEntrySets, sorted ──▶ Update
//	lookup ──Search──▶ fullHashes:find ──▶ ThreatMatch ──filter──▶ Answer
type V4 struct {
	*caller
	client *sbv4.ClientInfo
	lists  []string
	states func() [][]byte
}

// NewV4 returns a V4 that searches in the given lists, each one of v4Lists.
// States returns the versions of all lists that are held, which searches must tell. The error says what is wrong with the configuration, without
// the key in it.
func NewV4(cfg Config, lists []string, states func() [][]byte) (*V4, error) {
	c, err := newCaller(cfg, DefaultEndpoint)
	if err != nil {
		return nil, err
	}
	for _, name := range lists {
		if _, ok := tuples[name]; !ok {
			return nil, fmt.Errorf("protocol v4 has no list %q, only %s", name, strings.Join(v4Lists(), ", "))
		}
	}
	if states == nil {
		return nil, errors.New("a client of version 4 needs the states of its lists")
	}
	id, version, _ := strings.Cut(cfg.UserAgent, "/")
	return &V4{caller: c, client: &sbv4.ClientInfo{ClientId: id, ClientVersion: version}, lists: lists, states: states}, nil
}

// tuple is the name of a list in version 4, but for its entry type, which is URL.
type tuple struct {
	threat   sbv4.ThreatType
	platform sbv4.PlatformType
}

// tuples are the lists of version 4 by their names in version 5.
var tuples = map[string]tuple{
	"se-4b":   {sbv4.ThreatType_SOCIAL_ENGINEERING, sbv4.PlatformType_ANY_PLATFORM},
	"mw-4b":   {sbv4.ThreatType_MALWARE, sbv4.PlatformType_ANY_PLATFORM},
	"uws-4b":  {sbv4.ThreatType_UNWANTED_SOFTWARE, sbv4.PlatformType_ANY_PLATFORM},
	"uwsa-4b": {sbv4.ThreatType_UNWANTED_SOFTWARE, sbv4.PlatformType_ANDROID},
	"pha-4b":  {sbv4.ThreatType_POTENTIALLY_HARMFUL_APPLICATION, sbv4.PlatformType_ANDROID},
}

// v4Lists returns the names, of version 5, of all lists that version 4 has.
func v4Lists() []string { return slices.Sorted(maps.Keys(tuples)) }

// maxV4Entries is the greatest limit that version 4 knows ("Update Constraints").
const maxV4Entries = 1 << 20

// Fetch implements updater.Source by threatListUpdates.fetch. The wanted lists are some of
// v4Lists.
func (c *V4) Fetch(ctx context.Context, wanted []updater.Want, take func(i int, u *updater.Update)) (minimumWait time.Duration, err error) {
	defer c.hideKey(&err)
	question := &sbv4.FetchThreatListUpdatesRequest{Client: c.client}
	for _, w := range wanted {
		question.ListUpdateRequests = append(question.ListUpdateRequests, c.listRequest(w))
	}
	var answer sbv4.FetchThreatListUpdatesResponse
	if err := c.post(ctx, fetching, "/v4/threatListUpdates:fetch", question, boundUpdates, &answer); err != nil {
		return 0, fmt.Errorf("fetching lists: %w", err)
	}
	minimumWait, err = duration(answer.GetMinimumWaitDuration())
	if err != nil {
		return 0, fmt.Errorf("fetching lists: minimum wait: %w", err)
	}
	updates, err := matched(ctx, wanted, answer.ListUpdateResponses)
	if err != nil {
		return minimumWait, fmt.Errorf("fetching lists: %w", err)
	}
	for i, u := range updates {
		take(i, u)
	}
	return minimumWait, ctx.Err() // an update that was cut short by it is not wrong
}

func (c *V4) listRequest(w updater.Want) *sbv4.FetchThreatListUpdatesRequest_ListUpdateRequest {
	t := tuples[w.List]
	return &sbv4.FetchThreatListUpdatesRequest_ListUpdateRequest{
		ThreatType: t.threat, PlatformType: t.platform, ThreatEntryType: sbv4.ThreatEntryType_URL,
		State: w.Version,
		Constraints: &sbv4.FetchThreatListUpdatesRequest_ListUpdateRequest_Constraints{
			MaxDatabaseEntries:    int32(powerOfTwo(c.cfg.MaxEntries, maxV4Entries)),
			SupportedCompressions: []sbv4.CompressionType{sbv4.CompressionType_RICE, sbv4.CompressionType_RAW},
		},
	}
}

// matched finds the update of each wanted list by its three types. Nothing is said
// of a list for which the server has no update.
func matched(ctx context.Context, wanted []updater.Want, answers []*sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse) ([]*updater.Update, error) {
	updates := make([]*updater.Update, len(wanted))
	for _, a := range answers {
		i := slices.IndexFunc(wanted, func(w updater.Want) bool {
			return tuples[w.List] == tuple{a.GetThreatType(), a.GetPlatformType()} && a.GetThreatEntryType() == sbv4.ThreatEntryType_URL
		})
		if i < 0 || updates[i] != nil {
			return nil, fmt.Errorf("%w: an answer about %s/%s/%s, which was not asked for or has been answered already",
				updater.ErrMalformed, a.GetThreatType(), a.GetPlatformType(), a.GetThreatEntryType())
		}
		updates[i] = updateOfV4(ctx, a)
	}
	for i, w := range wanted {
		switch {
		case updates[i] == nil && w.Version != nil:
			updates[i] = &updater.Update{Version: w.Version, Partial: true}
		case updates[i] == nil:
			updates[i] = &updater.Update{Err: fmt.Errorf("%w: no answer about list %s, and nothing of it is held", updater.ErrMalformed, w.List)}
		}
	}
	return updates, nil
}

// Lists implements Client by threatLists.list. Lists that have no name in version
// 5 are left out.
func (c *V4) Lists(ctx context.Context) (all []ListInfo, err error) {
	defer c.hideKey(&err)
	var answer sbv4.ListThreatListsResponse
	if err := c.call(ctx, fetching, "/v4/threatLists", url.Values{}, nil, boundLists, &answer); err != nil {
		return nil, fmt.Errorf("listing lists: %w", err)
	}
	for _, name := range v4Lists() {
		for _, l := range answer.ThreatLists {
			t := tuple{l.GetThreatType(), l.GetPlatformType()}
			if tuples[name] == t && l.GetThreatEntryType() == sbv4.ThreatEntryType_URL {
				all = append(all, ListInfo{Name: name, Description: fmt.Sprintf("%s/%s/URL", t.threat, t.platform), Threats: t.threats()})
			}
		}
	}
	return all, nil
}

// threats returns the threat of the list, as a set. The numbers of the threat types
// have the same meaning in both versions.
func (t tuple) threats() lookup.Threats {
	return lookup.Threats(0).With(threatOf[sbv5.ThreatType(t.threat)])
}

// Search implements lookup.Searcher by fullHashes.find.
func (c *V4) Search(ctx context.Context, prefixes []lookup.Prefix) (result lookup.Answer, err error) {
	defer c.hideKey(&err)
	question := &sbv4.FindFullHashesRequest{Client: c.client, ClientStates: c.states(), ThreatInfo: c.threatInfo()}
	for _, p := range prefixes {
		question.ThreatInfo.ThreatEntries = append(question.ThreatInfo.ThreatEntries, &sbv4.ThreatEntry{Hash: []byte(p)})
	}
	var answer sbv4.FindFullHashesResponse
	if err := c.post(ctx, searching, "/v4/fullHashes:find", question, boundSearch, &answer); err != nil {
		return lookup.Answer{}, fmt.Errorf("searching full hashes: %w", err)
	}
	if result, err = c.answerOf(&answer); err != nil {
		return lookup.Answer{MinimumWait: result.MinimumWait}, fmt.Errorf("searching full hashes: %w", err)
	}
	return result, nil
}

// threatInfo names the lists that are searched, by each type that one of them has.
func (c *V4) threatInfo() *sbv4.ThreatInfo {
	info := &sbv4.ThreatInfo{ThreatEntryTypes: []sbv4.ThreatEntryType{sbv4.ThreatEntryType_URL}}
	for _, name := range c.lists {
		t := tuples[name]
		if !slices.Contains(info.ThreatTypes, t.threat) {
			info.ThreatTypes = append(info.ThreatTypes, t.threat)
		}
		if !slices.Contains(info.PlatformTypes, t.platform) {
			info.PlatformTypes = append(info.PlatformTypes, t.platform)
		}
	}
	return info
}

// answerOf reads what was found. Matches in other lists than those that are kept,
// which types of two lists together may name, are left out.
func (c *V4) answerOf(answer *sbv4.FindFullHashesResponse) (result lookup.Answer, err error) {
	if result.MinimumWait, err = duration(answer.GetMinimumWaitDuration()); err != nil {
		return lookup.Answer{}, err
	}
	if result.TTL, err = duration(answer.GetNegativeCacheDuration()); err != nil {
		return result, err
	}
	for _, m := range answer.Matches {
		hash := m.GetThreat().GetHash()
		if len(hash) != len(lookup.FullHash{}) {
			return result, fmt.Errorf("%w: full hash of %d bytes", updater.ErrMalformed, len(hash))
		}
		life, err := duration(m.GetCacheDuration())
		if err != nil {
			return result, err
		}
		t := tuple{m.GetThreatType(), m.GetPlatformType()}
		if m.GetThreatEntryType() == sbv4.ThreatEntryType_URL && c.keeps(t) {
			result.Threats = append(result.Threats, lookup.ThreatHash{Hash: lookup.FullHash(hash), Threats: t.threats(), TTL: life})
		}
	}
	return result, nil
}

func (c *V4) keeps(t tuple) bool {
	return slices.ContainsFunc(c.lists, func(name string) bool { return tuples[name] == t })
}

// post sends question to path and decodes the answer, within b.
func (c *caller) post(ctx context.Context, m method, path string, question proto.Message, b bound, into proto.Message) error {
	body, err := proto.Marshal(question)
	if err != nil {
		return err
	}
	return c.call(ctx, m, path, url.Values{}, body, b, into)
}

// updateOfV4 checks the shape of a list's message and prepares its decoding, which
// fails once ctx has ended.
func updateOfV4(ctx context.Context, m *sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse) *updater.Update {
	u := &updater.Update{Version: m.GetNewClientState(), Checksum: m.GetChecksum().GetSha256()}
	if len(u.Checksum) == 0 {
		u.Checksum = nil
	}
	if u.Err = checkVersion(u.Version); u.Err != nil {
		return u
	}
	switch t := m.GetResponseType(); t {
	case sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_PARTIAL_UPDATE:
		u.Partial = true
	case sbv4.FetchThreatListUpdatesResponse_ListUpdateResponse_FULL_UPDATE:
	default:
		u.Err = fmt.Errorf("%w: an update that is neither full nor partial (%d)", updater.ErrMalformed, t)
		return u
	}
	if n := max(len(m.Additions), len(m.Removals)); n > maxSets {
		u.Err = fmt.Errorf("%w: %d sets of additions or of removals, at most %d are allowed", updater.ErrMalformed, n, maxSets)
		return u
	}
	for _, set := range m.Additions {
		entries, err := hashesOf(ctx, set)
		if err != nil {
			u.Err = err
			return u
		}
		u.Additions = append(u.Additions, entries)
	}
	u.Removals, u.Err = indicesOf(ctx, m.Removals)
	return u
}

// hashesOf returns the entries of one set of additions.
func hashesOf(ctx context.Context, set *sbv4.ThreatEntrySet) (updater.Entries, error) {
	switch t := set.GetCompressionType(); t {
	case sbv4.CompressionType_RAW:
		return rawEntries(ctx, set.GetRawHashes().GetPrefixSize(), set.GetRawHashes().GetRawHashes())
	case sbv4.CompressionType_RICE:
		r, err := riceV4(set.GetRiceHashes())
		if err != nil {
			return updater.Entries{}, err
		}
		return riceEntries(ctx, r), nil
	default:
		return updater.Entries{}, fmt.Errorf("%w: additions in compression type %d", updater.ErrMalformed, t)
	}
}

// indicesOf returns the indices of all sets of removals.
func indicesOf(ctx context.Context, sets []*sbv4.ThreatEntrySet) (updater.Entries, error) {
	var coded []rice
	var raw []int32
	for _, set := range sets {
		switch t := set.GetCompressionType(); t {
		case sbv4.CompressionType_RAW:
			raw = append(raw, set.GetRawIndices().GetIndices()...)
		case sbv4.CompressionType_RICE:
			r, err := riceV4(set.GetRiceIndices())
			if err != nil {
				return updater.Entries{}, err
			}
			coded = append(coded, r)
		default:
			return updater.Entries{}, fmt.Errorf("%w: removals in compression type %d", updater.ErrMalformed, t)
		}
	}
	return indexEntries(ctx, raw, coded), nil
}

// riceV4 returns a coding of version 4 that has been checked.
func riceV4(m *sbv4.RiceDeltaEncoding) (rice, error) {
	if m == nil {
		return rice{}, fmt.Errorf("%w: no data in Rice coding", updater.ErrMalformed)
	}
	return rice32(m.GetFirstValue(), m.GetRiceParameter(), m.GetNumEntries(), m.GetEncodedData())
}

// endOfV4 is when Google ends support of version 4 of Safe Browsing: 31 March 2027, from its
// first moment in UTC. The server may answer for some time after that. Source: Google's mail of
// spring 2026 to those who have a key for version 4, quoted in issue 56023 of
// brave/brave-browser; "Migration From V4" is the way from it.
var endOfV4 = time.Date(2027, time.March, 31, 0, 0, 0, 0, time.UTC)

// DialectV4 is the Update API, version 4 of Safe Browsing. One search is under way at
// a time: requests in parallel give no right to more of them ("Request Frequency"),
// and the prefixes of queries that come meanwhile go into the next.
var DialectV4 = &Dialect{
	Name:        "v4",
	Title:       safeBrowsing + " v4",
	Service:     safeBrowsing,
	Advisory:    safeBrowsingAdvisory,
	Endpoint:    DefaultEndpoint,
	Modes:       []lookup.Mode{lookup.Local},
	Rule:        lookup.RuleV4,
	AsStored:    true,
	Searches:    1,
	SearchRules: updater.SearchRules{Backoff: updater.Strict, Published: true},
	suffix:      " v4",
	schedule:    "schedule-v4.json", // its methods have waits of their own
	lists:       v4Lists(),
	ends:        endOfV4,
	MaxEntries:  func(entries int) int { return powerOfTwo(entries, maxV4Entries) },
	NewClient: func(cfg Config, lists []string, versions func() [][]byte) (Client, error) {
		return NewV4(cfg, lists, versions)
	},
}
