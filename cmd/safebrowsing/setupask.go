package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// asker asks the operator. Each question says which flag answers it.
type asker struct {
	in     *bufio.Reader
	source io.Reader // of in
	out    io.Writer
}

func newAsker(in io.Reader, out io.Writer) *asker { return &asker{bufio.NewReader(in), in, out} }

// line asks, and returns what is typed, or the default for an empty line.
func (a *asker) line(ctx context.Context, question, flag, byDefault string) (string, error) {
	fmt.Fprintf(a.out, "%s [%s]: ", question, byDefault)
	text, err := awaited(ctx, a.read)
	if err != nil {
		return "", unanswered(err, flag)
	}
	return cmp.Or(text, byDefault), nil
}

func (a *asker) read() (string, error) {
	text, err := a.in.ReadString('\n')
	if text != "" {
		err = nil // the last line needs no end
	}
	return strings.TrimSpace(text), err
}

// hidden asks for a secret, which a terminal does not show.
func (a *asker) hidden(ctx context.Context, question, flag string) (string, error) {
	fmt.Fprintf(a.out, "%s: ", question)
	read := a.read
	if f, ok := a.source.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		defer fmt.Fprintln(a.out)
		if shown, err := term.GetState(int(f.Fd())); err == nil {
			defer func() { _ = term.Restore(int(f.Fd()), shown) }() // also after Ctrl-C
		}
		read = func() (string, error) {
			raw, err := term.ReadPassword(int(f.Fd()))
			return strings.TrimSpace(string(raw)), err
		}
	}
	text, err := awaited(ctx, read)
	if err != nil {
		return "", unanswered(err, flag)
	}
	return text, nil
}

// yes asks whether something is to be done.
func (a *asker) yes(ctx context.Context, question, flag string) (bool, error) {
	answer, err := a.line(ctx, question, flag, "yes")
	return err == nil && strings.HasPrefix(strings.ToLower(answer), "y"), err
}

// unanswered is the error of a question that got no answer.
func unanswered(err error, flag string) error {
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted, nothing is changed: %w", err)
	case !errors.Is(err, io.EOF):
		return err
	}
	return fmt.Errorf("there is no answer: nobody is at a terminal. Give it with %s", flag)
}

// chosenLists returns the lists with these names or numbers, separated by commas or spaces.
func chosenLists(text string) ([]publicList, error) {
	return chosen(text, publicLists, []string{"none"}, func(l publicList, word string) bool { return l.name == word }, func(word string) error {
		return fmt.Errorf("%q is no list: write numbers or names as above, all, or none", word)
	})
}

// chosenNetworks returns the networks of a machine that are chosen by number, by network or address,
// or by "all"; none for "machine", which is number 0.
func chosenNetworks(m *machine, text string) ([]network, error) {
	example := "192.168.1.0/24"
	if len(m.networks) > 0 {
		example = m.networks[0].prefix.String()
	}
	named := func(n network, word string) bool { return n.prefix.String() == word || n.address.String() == word }
	return chosen(text, m.networks, []string{"machine", "0"}, named, func(word string) error {
		return fmt.Errorf("this machine has no address in %q: write machine, all, or one of its networks, such as %s", word, example)
	})
}

// chosen returns the things that are chosen by number, from 1, by name, or by "all"; none for a word of none, which stands alone.
func chosen[T comparable](text string, from []T, none []string, named func(T, string) bool, wrong func(word string) error) (all []T, err error) {
	given := words(text)
	for _, word := range given {
		n, notNumber := strconv.Atoi(word)
		if notNumber != nil {
			n = slices.IndexFunc(from, func(x T) bool { return named(x, word) }) + 1
		}
		switch {
		case word == "all" && len(from) > 0:
			return from, nil
		case slices.Contains(none, word) && len(given) == 1:
			return nil, nil
		case n < 1 || n > len(from):
			return nil, wrong(word)
		}
		if !slices.Contains(all, from[n-1]) {
			all = append(all, from[n-1])
		}
	}
	if len(all) == 0 {
		return nil, wrong(text)
	}
	return all, nil
}

// choose asks until the answer is one that chosen takes.
func choose[T any](ctx context.Context, s *settingUp, question, flag, byDefault string, chosen func(text string) ([]T, error)) ([]T, error) {
	for {
		text, err := s.line(ctx, question, flag, byDefault)
		if err != nil {
			return nil, err
		}
		all, wrong := chosen(text)
		if wrong == nil {
			return all, nil
		}
		s.say("%v.", wrong)
	}
}

// upstreams reads addresses of resolvers as *forward* has them: with a port or without, or with the
// name in their certificate, tls://ADDRESS%NAME or tls://ADDRESS%NAME:PORT.
func upstreams(text string) (all []string, err error) {
	for _, word := range words(text) {
		address, byTLS := strings.CutPrefix(word, "tls://")
		if byTLS {
			var name string
			address, name, _ = strings.Cut(address, "%")
			if within, ok := strings.CutPrefix(address, "["); ok && strings.Contains(name, "]:") {
				address, name = within, strings.Replace(name, "]:", ":", 1)
			}
			name, port, _ := strings.Cut(name, ":")
			if name == "" {
				return nil, fmt.Errorf("%q needs the name in the resolver's certificate, such as tls://9.9.9.9%%dns.quad9.net", word)
			}
			word = "tls://" + certified(address, name, port)
		}
		_, notAddress := netip.ParseAddr(address)
		_, notPort := netip.ParseAddrPort(address)
		if notAddress != nil && (notPort != nil || byTLS) {
			return nil, fmt.Errorf("%q is no address of a resolver, such as 9.9.9.9 or tls://9.9.9.9%%dns.quad9.net", word)
		}
		if !byTLS && strings.Contains(word, "%") {
			return nil, fmt.Errorf("%q has a zone, which *forward* drops: name an address without one", word)
		}
		all = append(all, word)
	}
	if len(all) == 0 {
		return nil, errors.New("a resolver is needed, such as 9.9.9.9")
	}
	return all, nil
}

// certified returns the address of an upstream by TLS with the name in its certificate, as *forward* reads it: without
// brackets it takes the port of an address of IPv6 for a part of the name.
func certified(address, name, port string) string {
	switch {
	case port == "":
		return address + "%" + name
	case strings.Contains(address, ":"):
		return "[" + address + "%" + name + "]:" + port
	}
	return address + "%" + name + ":" + port
}

// plain returns the addresses of upstreams for plain DNS.
func plain(upstreams []string) (all []string) {
	for _, u := range upstreams {
		if address, byTLS := strings.CutPrefix(u, "tls://"); byTLS {
			u, _, _ = strings.Cut(strings.TrimPrefix(address, "["), "%")
		}
		all = append(all, u)
	}
	return all
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
