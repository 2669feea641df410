package protocoltest

import (
	"errors"
	"fmt"
	"io"
	"math/big"
)

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
