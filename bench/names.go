package main

import (
	"bufio"
	"math/rand/v2"
	"os"
	"strings"
)

// suffixes are those that names end in, each with how often. The public suffixes
// among them have one to three labels.
var suffixes = []struct {
	name   string
	weight int
}{
	{"com", 40}, {"net", 10}, {"org", 8}, {"de", 7}, {"co.uk", 6}, {"fr", 4}, {"nl", 4}, {"com.br", 4},
	{"io", 3}, {"com.au", 3}, {"ne.jp", 2}, {"co.jp", 2}, {"eu", 2}, {"github.io", 2}, {"ac.uk", 1},
	{"cloudfront.net", 1}, {"k12.ca.us", 1},
}

// labelCounts is how many of 100 names have two labels, three and so on.
var labelCounts = []int{22, 46, 18, 9, 5}

const minLabels = 2

// first are leftmost labels that many names share.
var first = []string{"www", "api", "cdn", "static", "mail", "img", "app", "login", "edge", "m"}

// names returns n distinct host names of two to six labels, the same ones for
// the same seed.
func names(n int, seed uint64) []string {
	chance := rand.New(rand.NewPCG(seed, 1))
	seen := make(map[string]bool, n)
	all := make([]string, 0, n)
	for len(all) < n {
		if name := oneName(chance); !seen[name] {
			seen[name] = true
			all = append(all, name)
		}
	}
	return all
}

func oneName(chance *rand.Rand) string {
	weights := make([]int, len(suffixes))
	for i, s := range suffixes {
		weights[i] = s.weight
	}
	suffix := suffixes[pick(chance, weights)].name
	labels := minLabels + pick(chance, labelCounts)
	own := max(1, labels-strings.Count(suffix, ".")-1)
	var b strings.Builder
	for i := range own {
		if i == 0 && own > 1 && chance.IntN(3) == 0 {
			b.WriteString(first[chance.IntN(len(first))])
		} else {
			label(&b, chance)
		}
		b.WriteByte('.')
	}
	b.WriteString(suffix)
	return b.String()
}

// label writes two to four syllables and now and then a number.
func label(b *strings.Builder, chance *rand.Rand) {
	const consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
	for range 2 + chance.IntN(3) {
		b.WriteByte(consonants[chance.IntN(len(consonants))])
		b.WriteByte(vowels[chance.IntN(len(vowels))])
	}
	if chance.IntN(8) == 0 {
		b.WriteByte('-')
		b.WriteByte(byte('0' + chance.IntN(10)))
	}
}

// pick returns an index, each as often as its weight says.
func pick(chance *rand.Rand, weights []int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	at := chance.IntN(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return 0
}

// writeLines writes a header, and a line of each name.
func writeLines(file, header string, names []string, before, after string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	w.WriteString(header)
	for _, name := range names {
		w.WriteString(before)
		w.WriteString(name)
		w.WriteString(after)
		w.WriteByte('\n')
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
