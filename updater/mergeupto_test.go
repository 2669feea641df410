package updater

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
)

func TestUpToCountsEntriesThatAreNotGreater(t *testing.T) {
	const greatest = uint32(1<<32 - 1)
	for _, width := range []int{4, 5} {
		for n := 1; n <= 70; n++ {
			t.Run(fmt.Sprintf("%d entries of %d bytes", n, width), func(t *testing.T) {
				c := &cursor{width: width}
				for i := range n { // every third number, up to the greatest
					entry := make([]byte, width)
					binary.BigEndian.PutUint32(entry, greatest-uint32(3*(n-1-i)))
					c.rest = append(c.rest, entry...)
				}
				for below := range 3*n + 3 {
					asked := binary.BigEndian.AppendUint32(nil, greatest-uint32(below))
					want := 0
					for want < n && bytes.Compare(c.entry(want), asked) <= 0 {
						want++
					}
					if got := c.upTo(n, asked); got != want {
						t.Fatalf("%d entries are not greater than %x, want %d", got, asked, want)
					}
				}
			})
		}
	}
}
