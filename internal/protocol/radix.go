package protocol

import "slices"

// fewNumbers is how many numbers slices.Sort sorts faster than radixSort.
const fewNumbers = 128

// radixSort sorts numbers whose bits above shift+8 are equal: by the byte at shift in
// place, then each part by the bytes below it. For millions of numbers it is several
// times as fast as slices.Sort, and it needs no memory.
func radixSort(numbers []uint32, shift int) {
	if len(numbers) <= fewNumbers {
		slices.Sort(numbers)
		return
	}
	var next, end [256]int // of the part of each byte: the first place that is not final, and the end
	for _, n := range numbers {
		end[byte(n>>shift)]++
	}
	for b, at := 0, 0; b < 256; b++ {
		next[b] = at
		at += end[b]
		end[b] = at
	}
	for b := range 256 {
		for next[b] < end[b] {
			n := numbers[next[b]]
			for to := int(byte(n >> shift)); to != b; to = int(byte(n >> shift)) {
				n, numbers[next[to]] = numbers[next[to]], n
				next[to]++
			}
			numbers[next[b]] = n
			next[b]++
		}
	}
	if shift == 0 {
		return
	}
	from := 0
	for _, to := range end {
		radixSort(numbers[from:to], shift-8)
		from = to
	}
}
