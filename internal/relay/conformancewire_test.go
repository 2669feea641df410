package relay

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

// What a client reads is decoded here by code of its own, from the published description, so
// that an error which relay and client share does not go unseen.

// page is an answer as it came.
type page struct {
	status int
	header http.Header
	body   []byte
}

// get asks for a path with pairs of names and values as its query. The key is in the header
// unless without says otherwise.
func (s *subject) get(path string, pairs ...string) (page, error) {
	return s.send(http.MethodGet, path, http.Header{"X-Goog-Api-Key": {conformanceKey}, "User-Agent": {"conformance/1"}}, pairs...)
}

func (s *subject) send(method, path string, header http.Header, pairs ...string) (page, error) {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	r, err := http.NewRequest(method, s.url+path+"?"+values.Encode(), nil)
	if err != nil {
		return page{}, err
	}
	r.Header = header
	answer, err := s.client.Do(r)
	if err != nil {
		return page{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	return page{answer.StatusCode, answer.Header, body}, err
}

// read asks with alt=proto and decodes the answer, which must be good.
func (s *subject) read(m proto.Message, path string, pairs ...string) error {
	p, err := s.get(path, append([]string{"alt", "proto"}, pairs...)...)
	if err != nil {
		return err
	}
	return p.decode(m)
}

func (p page) decode(m proto.Message) error {
	if p.status != http.StatusOK || p.header.Get("Content-Type") != "application/x-protobuf" {
		return fmt.Errorf("status %d, content type %q: %.200s", p.status, p.header.Get("Content-Type"), p.body)
	}
	return proto.Unmarshal(p.body, m)
}

// statusOf are the words for statuses in Google's error object (google.rpc.Code).
var statusOf = map[int]string{400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}

// refused reports an error unless the answer is Google's error object with one of the statuses.
func (p page) refused(statuses ...int) error {
	var body struct {
		Error struct {
			Code            int
			Message, Status string
		}
	}
	if !slices.Contains(statuses, p.status) || !strings.HasPrefix(p.header.Get("Content-Type"), "application/json") {
		return fmt.Errorf("status %d, content type %q, want status %v", p.status, p.header.Get("Content-Type"), statuses)
	}
	if err := json.Unmarshal(p.body, &body); err != nil {
		return err
	}
	if e := body.Error; e.Code != p.status || e.Message == "" || statusOf[p.status] != "" && e.Status != statusOf[p.status] {
		return fmt.Errorf("status %d, error object %+v, want %s", p.status, e, statusOf[p.status])
	}
	return nil
}

// coding is a list of integers in Rice-delta coding ("Local Database").
type coding struct {
	width       int // bytes
	first       []uint64
	k, count    int32
	data        []byte
	least, most int32 // of k
}

// coding32 returns the coding of 4-byte entries or of indices, nil if the field is absent.
func coding32(m *sbv5.RiceDeltaEncoded32Bit) *coding {
	if m == nil {
		return nil
	}
	return &coding{4, []uint64{uint64(m.FirstValue)}, m.RiceParameter, m.EntriesCount, m.EncodedData, 3, 30}
}

// additions returns the coding of whichever field of additions is there, nil if none is.
func additions(l *sbv5.HashList) *coding {
	switch a := l.CompressedAdditions.(type) {
	case *sbv5.HashList_AdditionsFourBytes:
		return coding32(a.AdditionsFourBytes)
	case *sbv5.HashList_AdditionsEightBytes:
		m := a.AdditionsEightBytes
		return &coding{8, []uint64{m.FirstValue}, m.RiceParameter, m.EntriesCount, m.EncodedData, 35, 62}
	case *sbv5.HashList_AdditionsSixteenBytes:
		m := a.AdditionsSixteenBytes
		return &coding{16, []uint64{m.FirstValueHi, m.FirstValueLo}, m.RiceParameter, m.EntriesCount, m.EncodedData, 99, 126}
	case *sbv5.HashList_AdditionsThirtyTwoBytes:
		m := a.AdditionsThirtyTwoBytes
		first := []uint64{m.FirstValueFirstPart, m.FirstValueSecondPart, m.FirstValueThirdPart, m.FirstValueFourthPart}
		return &coding{32, first, m.RiceParameter, m.EntriesCount, m.EncodedData, 227, 254}
	}
	return nil
}

// values decodes the integers as big-endian strings. A nil coding has none.
func (c *coding) values() (all []string, err error) {
	if c == nil {
		return nil, nil
	}
	value := new(big.Int)
	for _, part := range c.first {
		value.Add(value.Lsh(value, 64), new(big.Int).SetUint64(part))
	}
	if c.count < 0 || c.count > 0 && (c.k < c.least || c.k > c.most) {
		return nil, fmt.Errorf("%d differences with parameter %d, must be %d to %d", c.count, c.k, c.least, c.most)
	}
	at := 0
	bit := func() (b uint) {
		if at < 8*len(c.data) {
			b = uint(c.data[at/8] >> (at % 8) & 1)
		}
		at++
		return b
	}
	all = append(all, string(value.FillBytes(make([]byte, c.width))))
	for range c.count {
		quotient := int64(0)
		for bit() == 1 {
			quotient++
		}
		difference := new(big.Int).Lsh(big.NewInt(quotient), uint(c.k))
		for i := range int(c.k) {
			difference.SetBit(difference, i, bit())
		}
		if value.Add(value, difference); value.BitLen() > 8*c.width || at > 8*len(c.data) {
			return nil, errors.New("a value is too large for its width, or the data ends")
		}
		all = append(all, string(value.FillBytes(make([]byte, c.width))))
	}
	if !ascend(all) {
		return nil, errors.New("values are not ascending")
	}
	return all, nil
}

// ascend reports whether each value is greater than the one before.
func ascend(all []string) bool {
	for i := 1; i < len(all); i++ {
		if all[i-1] >= all[i] {
			return false
		}
	}
	return true
}

// apply applies an update to the entries that a client has: first the removals, which are
// indices into what it had, then the additions, then the checksum ("Local Database").
func apply(base []string, l *sbv5.HashList) ([]string, error) {
	if !l.PartialUpdate {
		if l.CompressedRemovals != nil {
			return nil, errors.New("a full update with removals")
		}
		base = nil
	}
	removals, err := coding32(l.CompressedRemovals).values()
	if err != nil {
		return nil, fmt.Errorf("removals: %w", err)
	}
	came, err := additions(l).values()
	if err != nil {
		return nil, fmt.Errorf("additions: %w", err)
	}
	after := slices.Clone(base)
	for _, raw := range slices.Backward(removals) {
		index := int(new(big.Int).SetBytes([]byte(raw)).Int64())
		if index >= len(base) {
			return nil, fmt.Errorf("removal of entry %d of %d", index, len(base))
		}
		after = slices.Delete(after, index, index+1)
	}
	after = append(after, came...)
	slices.Sort(after)
	if !ascend(after) {
		return nil, errors.New("an addition is in the list already")
	}
	nothing := l.PartialUpdate && len(removals)+len(came) == 0 && len(l.Sha256Checksum) == 0
	if sum := sha256.Sum256([]byte(strings.Join(after, ""))); !nothing && !bytes.Equal(l.Sha256Checksum, sum[:]) {
		return nil, fmt.Errorf("checksum %x, want %x", l.Sha256Checksum, sum)
	}
	return after, nil
}
