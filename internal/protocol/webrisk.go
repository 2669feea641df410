package protocol

import (
	"context"
	"fmt"
	"maps"
	"math/bits"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// WebRiskEndpoint is the address of Google's Web Risk server.
const WebRiskEndpoint = "https://webrisk.googleapis.com"

// WebRisk speaks the Web Risk API, version 1. It implements Client, and
// updater.OneByOne.
type WebRisk struct {
	*caller
	searched []wrv1.ThreatType // each once
}

// NewWebRisk returns a WebRisk that searches in the given lists, each one of
// WebRiskLists. The error says what is wrong with the configuration, without
// the key in it.
func NewWebRisk(cfg Config, lists []string) (*WebRisk, error) {
	caller, err := newCaller(cfg, WebRiskEndpoint)
	if err != nil {
		return nil, err
	}
	c := &WebRisk{caller: caller}
	for _, name := range lists {
		l, ok := webRiskLists[name]
		if !ok {
			return nil, fmt.Errorf("protocol webrisk has no list %q, only %s", name, strings.Join(WebRiskLists(), ", "))
		}
		if !slices.Contains(c.searched, l.threat) {
			c.searched = append(c.searched, l.threat)
		}
	}
	return c, nil
}

// webRiskLists are the lists of Web Risk, by their names in Safe Browsing version 5 or,
// for the one that only Web Risk has, by a name of that form.
var webRiskLists = map[string]struct {
	threat      wrv1.ThreatType
	description string
}{
	"mw-4b":     {wrv1.ThreatType_MALWARE, "malware, for any platform"},
	"se-4b":     {wrv1.ThreatType_SOCIAL_ENGINEERING, "social engineering, for any platform"},
	"uws-4b":    {wrv1.ThreatType_UNWANTED_SOFTWARE, "unwanted software, for any platform"},
	"se-ext-4b": {wrv1.ThreatType_SOCIAL_ENGINEERING_EXTENDED_COVERAGE, "social engineering, extended coverage, for any platform"},
}

// WebRiskLists returns the names of all lists that Web Risk has.
func WebRiskLists() []string { return slices.Sorted(maps.Keys(webRiskLists)) }

// maxRiskEntries is the greatest limit of Web Risk: the field has 31 bits (Web Risk, "Update
// Constraints"; that page recommends 2^24, so 2^20 is not the end).
const maxRiskEntries = 1 << 30

// powerOfTwo returns what a limit of entries becomes for a server that takes powers of two from
// 2^10 to most: the greatest that is no greater. 0 is no limit.
func powerOfTwo(entries, most int) int {
	if entries <= 0 {
		return 0
	}
	return min(max(1<<(bits.Len(uint(entries))-1), 1<<10), most)
}

// OneByOne implements updater.OneByOne: threatLists.computeDiff is about one list.
func (c *WebRisk) OneByOne() {}

// Fetch implements updater.Source by one threatLists.computeDiff for each list, in the
// order wanted. After the first that fails it asks no more. The wanted lists are some of
// WebRiskLists.
func (c *WebRisk) Fetch(ctx context.Context, wanted []updater.Want, take func(i int, u *updater.Update)) (minimumWait time.Duration, err error) {
	defer c.hideKey(&err)
	for i, w := range wanted {
		u, err := c.computeDiff(ctx, w)
		if err != nil {
			return 0, fmt.Errorf("fetching list %s: %w", w.List, err)
		}
		take(i, u)
		if err := ctx.Err(); err != nil { // an update that was cut short by it is not wrong
			return u.MinimumWait, err
		}
	}
	return 0, nil
}

func (c *WebRisk) computeDiff(ctx context.Context, w updater.Want) (*updater.Update, error) {
	query := url.Values{
		"threatType":                        {webRiskLists[w.List].threat.String()},
		"constraints.supportedCompressions": {wrv1.CompressionType_RAW.String(), wrv1.CompressionType_RICE.String()},
	}
	if w.Version != nil {
		query.Set("versionToken", bytesParam.EncodeToString(w.Version))
	}
	if n := powerOfTwo(c.cfg.MaxEntries, maxRiskEntries); n > 0 {
		query.Set("constraints.maxDatabaseEntries", strconv.Itoa(n))
		query.Set("constraints.maxDiffEntries", strconv.Itoa(n))
	}
	var answer wrv1.ComputeThreatListDiffResponse
	clock, err := c.timed(ctx, fetching, "/v1/threatLists:computeDiff", query, boundUpdates, &answer)
	if err != nil {
		return nil, err
	}
	return updateOfWebRisk(ctx, &answer, clock), nil
}

// timed is get for an answer that names times.
func (c *WebRisk) timed(ctx context.Context, m method, path string, query url.Values, b bound, into proto.Message) (serverClock, error) {
	asked := time.Now()
	answer, err := c.open(ctx, m, path, query, nil, b.bytes)
	if err != nil {
		return serverClock{}, err
	}
	defer answer.Body.Close()
	err = readWhole(answer, b, into)
	return newServerClock(answer.Header, asked, time.Now()), err
}

// Lists implements Client. It sends no request: Web Risk has no method for it.
func (c *WebRisk) Lists(context.Context) (all []ListInfo, err error) {
	for _, name := range WebRiskLists() {
		l := webRiskLists[name]
		all = append(all, ListInfo{Name: name, Description: l.description, Threats: lookup.Threats(0).With(threatOfWebRisk[l.threat])})
	}
	return all, nil
}

// threatOfWebRisk has the threat of each type that is known.
// Extended coverage is social engineering: how sure Google is about a name does not change
// what it does to a user. The list in a Decision tells the two apart.
var threatOfWebRisk = map[wrv1.ThreatType]lookup.Threat{
	wrv1.ThreatType_MALWARE:                              lookup.Malware,
	wrv1.ThreatType_SOCIAL_ENGINEERING:                   lookup.SocialEngineering,
	wrv1.ThreatType_SOCIAL_ENGINEERING_EXTENDED_COVERAGE: lookup.SocialEngineering,
	wrv1.ThreatType_UNWANTED_SOFTWARE:                    lookup.UnwantedSoftware,
}

// Search implements lookup.Searcher by hashes.search, which takes exactly one prefix,
// of 4 to 32 bytes. It returns an error, and sends nothing, for any other number of
// prefixes.
func (c *WebRisk) Search(ctx context.Context, prefixes []lookup.Prefix) (result lookup.Answer, err error) {
	defer c.hideKey(&err)
	if err := c.checkSearch(prefixes); err != nil {
		return lookup.Answer{}, fmt.Errorf("searching full hashes: %w", err)
	}
	query := url.Values{"hashPrefix": {bytesParam.EncodeToString([]byte(prefixes[0]))}}
	for _, t := range c.searched {
		query.Add("threatTypes", t.String())
	}
	var answer wrv1.SearchHashesResponse
	clock, err := c.timed(ctx, searching, "/v1/hashes:search", query, boundSearch, &answer)
	if err == nil {
		result, err = c.answerOf(&answer, clock)
	}
	if err != nil {
		return lookup.Answer{}, fmt.Errorf("searching full hashes: %w", err)
	}
	return result, nil
}

// checkSearch finds what the server would refuse, and may charge for.
func (c *WebRisk) checkSearch(prefixes []lookup.Prefix) error {
	switch {
	case len(prefixes) != 1:
		return fmt.Errorf("%d hash prefixes, Web Risk takes exactly one", len(prefixes))
	case len(prefixes[0]) < 4 || len(prefixes[0]) > len(lookup.FullHash{}):
		return fmt.Errorf("a hash prefix of %d bytes, must be 4 to %d", len(prefixes[0]), len(lookup.FullHash{}))
	case len(c.searched) == 0:
		return fmt.Errorf("no list to search in: use some of %s", strings.Join(WebRiskLists(), ", "))
	}
	return nil
}

// answerOf reads what was found. Threat types that are unknown or were not asked for
// are left out.
func (c *WebRisk) answerOf(answer *wrv1.SearchHashesResponse, clock serverClock) (result lookup.Answer, err error) {
	if result.TTL, _, err = clock.until(answer.GetNegativeExpireTime()); err != nil {
		return lookup.Answer{}, err
	}
	for _, t := range answer.Threats {
		if len(t.GetHash()) != len(lookup.FullHash{}) {
			return lookup.Answer{}, fmt.Errorf("%w: full hash of %d bytes", updater.ErrMalformed, len(t.GetHash()))
		}
		found := lookup.ThreatHash{Hash: lookup.FullHash(t.GetHash())}
		if found.TTL, _, err = clock.until(t.GetExpireTime()); err != nil {
			return lookup.Answer{}, err
		}
		for _, threat := range t.ThreatTypes {
			if slices.Contains(c.searched, threat) {
				found.Threats = found.Threats.With(threatOfWebRisk[threat])
			}
		}
		if found.Threats != 0 {
			result.Threats = append(result.Threats, found)
		}
	}
	return result, nil
}

// updateOfWebRisk checks the shape of an answer about a list and prepares its decoding,
// which fails once ctx has ended.
func updateOfWebRisk(ctx context.Context, m *wrv1.ComputeThreatListDiffResponse, clock serverClock) *updater.Update {
	u := &updater.Update{Version: m.GetNewVersionToken(), Checksum: m.GetChecksum().GetSha256()}
	if _, u.MinimumWait, u.Err = clock.until(m.GetRecommendedNextDiff()); u.Err != nil {
		u.Err = fmt.Errorf("recommended next diff: %w", u.Err)
		return u
	}
	if u.Err = checkVersion(u.Version); u.Err != nil {
		return u
	}
	switch t := m.GetResponseType(); t {
	case wrv1.ComputeThreatListDiffResponse_DIFF:
		u.Partial = true
	case wrv1.ComputeThreatListDiffResponse_RESET:
	default:
		u.Err = fmt.Errorf("%w: an update that is neither full nor partial (%d)", updater.ErrMalformed, t)
		return u
	}
	if u.Additions, u.Err = additionsOfWebRisk(ctx, m.GetAdditions()); u.Err == nil {
		u.Removals, u.Err = removalsOfWebRisk(ctx, m.GetRemovals())
	}
	return u
}

// additionsOfWebRisk returns a stream for each set of raw prefixes, and one for those
// in Rice coding.
func additionsOfWebRisk(ctx context.Context, m *wrv1.ThreatEntryAdditions) (all []updater.Entries, err error) {
	if n := len(m.GetRawHashes()); n > maxSets {
		return nil, fmt.Errorf("%w: %d sets of additions, at most %d are allowed", updater.ErrMalformed, n, maxSets)
	}
	for _, set := range m.GetRawHashes() {
		entries, err := rawEntries(ctx, set.GetPrefixSize(), set.GetRawHashes())
		if err != nil {
			return nil, err
		}
		all = append(all, entries)
	}
	if m.GetRiceHashes() == nil {
		return all, nil
	}
	r, err := riceOfWebRisk(m.GetRiceHashes())
	if err != nil {
		return nil, err
	}
	return append(all, riceEntries(ctx, r)), nil
}

// removalsOfWebRisk returns the indices, which may be raw, in Rice coding, or both.
func removalsOfWebRisk(ctx context.Context, m *wrv1.ThreatEntryRemovals) (updater.Entries, error) {
	var coded []rice
	if m.GetRiceIndices() != nil {
		r, err := riceOfWebRisk(m.GetRiceIndices())
		if err != nil {
			return updater.Entries{}, err
		}
		coded = append(coded, r)
	}
	return indexEntries(ctx, m.GetRawIndices().GetIndices(), coded), nil
}

func riceOfWebRisk(m *wrv1.RiceDeltaEncoding) (rice, error) {
	return rice32(m.GetFirstValue(), m.GetRiceParameter(), m.GetEntryCount(), m.GetEncodedData())
}
