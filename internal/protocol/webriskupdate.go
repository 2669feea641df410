package protocol

import (
	"context"
	"fmt"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/wrv1"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// updateOfWebRisk checks the shape of an answer about a list and prepares its decoding,
// which fails once ctx has ended.
func updateOfWebRisk(ctx context.Context, m *wrv1.ComputeThreatListDiffResponse, clock serverClock) *updater.Update {
	u := &updater.Update{Version: m.GetNewVersionToken(), Checksum: m.GetChecksum().GetSha256()}
	if u.MinimumWait, u.Err = clock.wait(m.GetRecommendedNextDiff()); u.Err != nil {
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
