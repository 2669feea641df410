package protocol

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// bytesParam encodes values of type bytes in a URL.
var bytesParam = base64.URLEncoding

// V5 speaks version 5 of the protocol. It implements Client.
type V5 struct{ *caller }

// NewV5 returns a V5, or an error that says what is wrong with the configuration,
// without the key in it.
func NewV5(cfg Config) (*V5, error) {
	c, err := newCaller(cfg, DefaultEndpoint)
	return &V5{c}, err
}

// Fetch implements updater.Source with hashLists.batchGet, or hashList.get for a single list. Where
// the answer breaks off or is malformed, the minimum wait is the longest of the lists that had come.
func (c *V5) Fetch(ctx context.Context, wanted []updater.Want, take func(i int, u *updater.Update)) (minimumWait time.Duration, err error) {
	defer c.hideKey(&err)
	var came []*updater.Update
	note := func(i int, u *updater.Update) { came = append(came, u); take(i, u) }
	defer func() {
		for i := 0; err != nil && i < len(came); i++ {
			minimumWait = max(minimumWait, came[i].MinimumWait)
		}
	}()
	query := url.Values{}
	if c.cfg.MaxEntries > 0 {
		query.Set("sizeConstraints.maxDatabaseEntries", strconv.Itoa(c.cfg.MaxEntries))
	}
	for _, w := range wanted {
		if w.Version != nil {
			query.Add("version", bytesParam.EncodeToString(w.Version))
		}
	}
	if len(wanted) == 1 {
		if err := c.fetchOne(ctx, query, wanted[0], func(u *updater.Update) { note(0, u) }); err != nil {
			return 0, fmt.Errorf("fetching list %s: %w", wanted[0].List, err)
		}
		return 0, nil
	}
	for _, w := range wanted {
		query.Add("names", w.List)
	}
	if err := c.fetchBatch(ctx, query, wanted, note); err != nil {
		return 0, fmt.Errorf("fetching lists: %w", err)
	}
	return 0, nil
}

// fetchBatch asks for several lists. It decodes a binary answer while it comes, and reads
// JSON whole.
func (c *V5) fetchBatch(ctx context.Context, query url.Values, wanted []updater.Want, take func(i int, u *updater.Update)) error {
	answer, err := c.open(ctx, fetching, "/v5/hashLists:batchGet", query, nil, maxListBytes)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if isBinary(answer.Header.Get("Content-Type")) {
		return readBatch(ctx, answer.Body, wanted, take)
	}
	var batch sbv5.BatchGetHashListsResponse
	if err := readWhole(answer, boundUpdates, &batch); err != nil {
		return err
	}
	if len(batch.HashLists) != len(wanted) {
		return fmt.Errorf("%w: %d lists in the answer, asked for %d", updater.ErrMalformed, len(batch.HashLists), len(wanted))
	}
	for i, list := range batch.HashLists {
		if list.GetName() != wanted[i].List {
			return otherList(list.GetName(), wanted[i].List)
		}
		take(i, updateOf(ctx, list))
	}
	return ctx.Err() // if ctx has ended, an update may be truncated: that is not the server's fault
}

// fetchOne is fetchBatch for one list.
func (c *V5) fetchOne(ctx context.Context, query url.Values, w updater.Want, take func(u *updater.Update)) error {
	answer, err := c.open(ctx, fetching, "/v5/hashList/"+w.List, query, nil, maxListBytes)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if isBinary(answer.Header.Get("Content-Type")) {
		length := answer.ContentLength
		if answer.Header.Get("Content-Encoding") != "" { // ContentLength counts compressed bytes
			length = -1
		}
		return readOne(ctx, answer.Body, length, w.List, take)
	}
	var list sbv5.HashList
	if err := readWhole(answer, boundUpdates, &list); err != nil {
		return err
	}
	if list.GetName() != w.List {
		return otherList(list.GetName(), w.List)
	}
	take(updateOf(ctx, &list))
	return ctx.Err() // if ctx has ended, the update may be truncated: that is not the server's fault
}

// otherList returns the error for a list that was not asked for.
func otherList(got, want string) error {
	return fmt.Errorf("%w: list %q instead of %q", updater.ErrMalformed, got, want)
}

// maxPages is the most pages of the list of lists: a server's pages might never end. All
// pages together share the bound of one answer.
const maxPages = 100

// Lists implements Client with hashLists.list.
func (c *V5) Lists(ctx context.Context) (all []ListInfo, err error) {
	defer c.hideKey(&err)
	token, b := "", boundLists
	for range maxPages {
		query := url.Values{}
		if token != "" {
			query.Set("pageToken", token)
		}
		var page sbv5.ListHashListsResponse
		if err := c.call(ctx, fetching, "/v5/hashLists", query, nil, b, &page); err != nil {
			return nil, fmt.Errorf("listing lists: %w", err)
		}
		if b.bytes -= int64(proto.Size(&page)); len(all)+len(page.HashLists) > maxLists {
			return nil, fmt.Errorf("listing lists: %w: more than %d lists", updater.ErrMalformed, maxLists)
		}
		for _, l := range page.HashLists {
			info := ListInfo{Name: l.GetName(), Description: l.GetMetadata().GetDescription()}
			for _, t := range l.GetMetadata().GetThreatTypes() {
				if threat := threatOf[t]; threat != lookup.NoThreat {
					info.Threats = info.Threats.With(threat)
				}
			}
			all = append(all, info)
		}
		if token = page.GetNextPageToken(); token == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("listing lists: %w: more than %d pages", updater.ErrMalformed, maxPages)
}

// updateOf checks the shape of a list's message and returns an update that decodes it while it
// is read. Reading fails once ctx has ended.
func updateOf(ctx context.Context, list *sbv5.HashList) *updater.Update {
	u := &updater.Update{Version: list.GetVersion(), Partial: list.GetPartialUpdate(), Checksum: list.GetSha256Checksum()}
	if len(u.Checksum) == 0 {
		u.Checksum = nil
	}
	if u.MinimumWait, u.Err = duration(list.GetMinimumWaitDuration()); u.Err != nil {
		u.Err = fmt.Errorf("minimum wait: %w", u.Err)
		return u
	}
	if u.Err = checkVersion(u.Version); u.Err != nil {
		return u
	}
	if removals := list.GetCompressedRemovals(); removals != nil {
		r := newRice(4, [4]uint64{uint64(removals.GetFirstValue())}, removals)
		if u.Err = r.check(parametersV5(r.width)); u.Err != nil {
			return u
		}
		u.Removals = r.entries(ctx)
	}
	if u.Additions, u.Err = longerOf(ctx, list); u.Err != nil {
		return u
	}
	additions, ok := additionsOf(list)
	if !ok {
		return u
	}
	if u.Err = checkAdditions(list.GetName(), additions); u.Err == nil {
		u.Additions = append(u.Additions, additions.entries(ctx))
	}
	return u
}

// checkVersion returns an error for a version that is too long for a later request: in version
// 5 it becomes part of the URL.
func checkVersion(version []byte) error {
	if len(version) > maxVersionBytes {
		return fmt.Errorf("%w: a version of %d bytes, at most %d are allowed", updater.ErrMalformed, len(version), maxVersionBytes)
	}
	return nil
}

// checkAdditions checks the additions to a list before they are decoded.
func checkAdditions(name string, additions rice) error {
	width, err := updater.Width(name)
	if err != nil {
		return err
	}
	if additions.width != width {
		return fmt.Errorf("%w: additions of %d bytes in list %s", updater.ErrMalformed, additions.width, name)
	}
	return additions.check(parametersV5(width))
}

// additionsOf returns the additions of a list, and whether there are any. A message that is
// present but empty means one entry of zero bytes.
func additionsOf(list *sbv5.HashList) (rice, bool) {
	switch a := list.GetCompressedAdditions().(type) {
	case *sbv5.HashList_AdditionsFourBytes:
		m := a.AdditionsFourBytes
		return newRice(4, [4]uint64{uint64(m.GetFirstValue())}, m), true
	case *sbv5.HashList_AdditionsEightBytes:
		m := a.AdditionsEightBytes
		return newRice(8, [4]uint64{m.GetFirstValue()}, m), true
	case *sbv5.HashList_AdditionsSixteenBytes:
		m := a.AdditionsSixteenBytes
		return newRice(16, [4]uint64{m.GetFirstValueLo(), m.GetFirstValueHi()}, m), true
	case *sbv5.HashList_AdditionsThirtyTwoBytes:
		m := a.AdditionsThirtyTwoBytes
		first := [4]uint64{m.GetFirstValueFourthPart(), m.GetFirstValueThirdPart(), m.GetFirstValueSecondPart(), m.GetFirstValueFirstPart()}
		return newRice(32, first, m), true
	}
	return rice{}, false
}

// duration returns a duration of the protocol, or an error if it is negative. An absent one
// is zero.
func duration(d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil || d.AsDuration() < 0 {
		return 0, fmt.Errorf("%w: duration of %d s and %d ns", updater.ErrMalformed, d.GetSeconds(), d.GetNanos())
	}
	return d.AsDuration(), nil
}

// Search implements lookup.Searcher with hashes.search. A relay may answer in part: then the error
// is a *lookup.UnansweredError.
func (c *V5) Search(ctx context.Context, prefixes []lookup.Prefix) (result lookup.Answer, err error) {
	defer c.hideKey(&err)
	query := url.Values{}
	for _, p := range prefixes {
		query.Add("hashPrefixes", bytesParam.EncodeToString([]byte(p)))
	}
	var answer sbv5.SearchHashesResponse
	unanswered, why, err := c.search(ctx, query, &answer)
	if err != nil {
		return lookup.Answer{}, fmt.Errorf("searching full hashes: %w", err)
	}
	if result, err = answerOfV5(&answer); err != nil || unanswered == "" {
		return result, err
	}
	u, err := parseUnanswered(unanswered, prefixes)
	if err != nil {
		return lookup.Answer{}, fmt.Errorf("searching full hashes: %w", err)
	}
	if why != "" {
		u.Reason = &reworded{text: why, err: u.Reason}
	}
	return u.answer(prefixes, result.Threats)
}

// search sends the request. It returns the value of UnansweredHeader. A refusal with that header
// is an answer without a threat, which says why in words.
func (c *V5) search(ctx context.Context, query url.Values, answer *sbv5.SearchHashesResponse) (unanswered, why string, err error) {
	got, err := c.open(ctx, searching, searchPath, query, nil, boundSearch.bytes)
	if err != nil {
		if r, ok := errors.AsType[*refusal](err); ok {
			return r.unanswered, r.Message, nil
		}
		return "", "", err
	}
	defer got.Body.Close()
	return c.relayHeader(got, UnansweredHeader), "", readWhole(got, boundSearch, answer)
}

// answerOfV5 reads what was found.
func answerOfV5(answer *sbv5.SearchHashesResponse) (result lookup.Answer, err error) {
	ttl, err := duration(answer.GetCacheDuration())
	if err != nil {
		return lookup.Answer{}, fmt.Errorf("searching full hashes: %w", err)
	}
	result.TTL = ttl
	for _, f := range answer.FullHashes {
		if len(f.GetFullHash()) != len(lookup.FullHash{}) {
			return lookup.Answer{}, fmt.Errorf("searching full hashes: %w: full hash of %d bytes", updater.ErrMalformed, len(f.GetFullHash()))
		}
		threats, frameOnly := enforceable(f.GetFullHashDetails())
		if threats != 0 {
			result.Threats = append(result.Threats, lookup.ThreatHash{Hash: lookup.FullHash(f.GetFullHash()), Threats: threats, TTL: ttl})
		}
		if frameOnly != 0 {
			result.Threats = append(result.Threats, lookup.ThreatHash{Hash: lookup.FullHash(f.GetFullHash()), Threats: frameOnly, TTL: ttl, FrameOnly: true})
		}
	}
	return result, nil
}

// enforceable returns the threats that may block a host. frameOnly has those for which every
// detail is marked FRAME_ONLY. The client must ignore a detail with an unknown threat type or
// an unknown attribute (schema of version 5, FullHashDetail). It also ignores CANARY, which is
// not for enforcement.
func enforceable(details []*sbv5.FullHash_FullHashDetail) (threats, frameOnly lookup.Threats) {
	for _, d := range details {
		threat := threatOf[d.GetThreatType()]
		switch attributes := d.GetAttributes(); {
		case threat == lookup.NoThreat:
		case len(attributes) == 0:
			threats = threats.With(threat)
		case !slices.ContainsFunc(attributes, isNotFrameOnly):
			frameOnly = frameOnly.With(threat)
		}
	}
	return threats, frameOnly &^ threats
}

func isNotFrameOnly(a sbv5.ThreatAttribute) bool { return a != sbv5.ThreatAttribute_FRAME_ONLY }

// threatOf has the Threat of each type that is known.
var threatOf = map[sbv5.ThreatType]lookup.Threat{
	sbv5.ThreatType_MALWARE:                         lookup.Malware,
	sbv5.ThreatType_SOCIAL_ENGINEERING:              lookup.SocialEngineering,
	sbv5.ThreatType_UNWANTED_SOFTWARE:               lookup.UnwantedSoftware,
	sbv5.ThreatType_POTENTIALLY_HARMFUL_APPLICATION: lookup.PotentiallyHarmfulApplication,
}
