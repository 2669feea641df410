package protocoltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol/pb/sbv5"
)

func uint64ToBig(parts ...uint64) *big.Int {
	var b []byte
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, p)
	}
	return new(big.Int).SetBytes(b)
}

// decodeAdditions decodes the additions, which must be of the width.
func decodeAdditions(m *sbv5.HashList, width int) ([]*big.Int, error) {
	got, parameter, count, data, first := 0, int32(0), int32(0), []byte(nil), (*big.Int)(nil)
	switch a := m.CompressedAdditions.(type) {
	case nil:
		return nil, nil
	case *sbv5.HashList_AdditionsFourBytes:
		v := a.AdditionsFourBytes
		got, parameter, count, data, first = 4, v.RiceParameter, v.EntriesCount, v.EncodedData, uint64ToBig(uint64(v.FirstValue))
	case *sbv5.HashList_AdditionsEightBytes:
		v := a.AdditionsEightBytes
		got, parameter, count, data, first = 8, v.RiceParameter, v.EntriesCount, v.EncodedData, uint64ToBig(v.FirstValue)
	case *sbv5.HashList_AdditionsSixteenBytes:
		v := a.AdditionsSixteenBytes
		got, parameter, count, data, first = 16, v.RiceParameter, v.EntriesCount, v.EncodedData, uint64ToBig(v.FirstValueHi, v.FirstValueLo)
	case *sbv5.HashList_AdditionsThirtyTwoBytes:
		v := a.AdditionsThirtyTwoBytes
		got, parameter, count, data = 32, v.RiceParameter, v.EntriesCount, v.EncodedData
		first = uint64ToBig(v.FirstValueFirstPart, v.FirstValueSecondPart, v.FirstValueThirdPart, v.FirstValueFourthPart)
	}
	if got != width {
		return nil, fmt.Errorf("%d bytes, want %d", got, width)
	}
	return decodeRice(8*width, true, first, parameter, count, data)
}

// decodeRice decodes a field of v5 that may be absent.
func decodeRice(width int, present bool, first *big.Int, k, count int32, data []byte) ([]*big.Int, error) {
	if !present {
		return nil, nil
	}
	if count > 0 && (int(k) < width-29 || int(k) > width-2) {
		return nil, fmt.Errorf("parameter %d", k)
	}
	return decodeRiceBits(width, first, k, count, data)
}

// decodeRiceBits decodes bit by bit, with any parameter.
func decodeRiceBits(width int, first *big.Int, k, count int32, data []byte) ([]*big.Int, error) {
	values := []*big.Int{first}
	if count == 0 {
		return values, nil
	}
	if count < 0 || int(count) > 8*len(data) {
		return nil, fmt.Errorf("count %d of %d bytes", count, len(data))
	}
	at := 0
	bit := func() (b uint, err error) {
		if at >= 8*len(data) {
			return 0, io.ErrUnexpectedEOF
		}
		b = uint(data[at/8]>>(at%8)) & 1
		at++
		return b, nil
	}
	for range count {
		gap := new(big.Int)
		quotient := int64(0)
		for {
			b, err := bit()
			if err != nil {
				return nil, err
			}
			if b == 0 {
				break
			}
			quotient++
		}
		gap.Lsh(big.NewInt(quotient), uint(k))
		for i := range int(k) {
			b, err := bit()
			if err != nil {
				return nil, err
			}
			gap.SetBit(gap, i, gap.Bit(i)|b)
		}
		next := gap.Add(gap, values[len(values)-1])
		if next.BitLen() > width {
			return nil, errors.New("value too large")
		}
		values = append(values, next)
	}
	return values, nil
}
