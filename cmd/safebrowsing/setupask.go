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
	text, err := typed(ctx, a.read)
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

// typed returns what read returns, or the error of a context that ends before, as by Ctrl-C. Reading a
// terminal cannot be ended: read then continues until the process ends, which is next.
func typed(ctx context.Context, read func() (string, error)) (text string, err error) {
	done := make(chan struct{})
	var readText string
	var readErr error
	go func() {
		readText, readErr = read()
		close(done)
	}()
	select {
	case <-done:
		return readText, readErr
	case <-ctx.Done():
		return "", ctx.Err()
	}
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
	text, err := typed(ctx, read)
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
func chosenLists(text string) (all []publicList, err error) {
	for _, word := range words(text) {
		switch n, notNumber := strconv.Atoi(word); {
		case word == "all":
			return publicLists, nil
		case word == "none":
			return nil, nil
		case notNumber == nil && n >= 1 && n <= len(publicLists):
			all = append(all, publicLists[n-1])
		default:
			i := slices.IndexFunc(publicLists, func(l publicList) bool { return l.name == word })
			if i < 0 {
				return nil, fmt.Errorf("%q is no list: write numbers or names as above, all, or none", word)
			}
			all = append(all, publicLists[i])
		}
	}
	return all, nil
}

// chosenNetworks returns the networks of a machine that are chosen by number, by network or address,
// or by "all"; none for "machine", which is number 0.
func chosenNetworks(m *machine, text string) (all []network, err error) {
	for _, word := range words(text) {
		switch n, notNumber := strconv.Atoi(word); {
		case word == "all":
			return m.networks, nil
		case word == "machine", notNumber == nil && n == 0:
			return nil, nil
		case notNumber == nil && n >= 1 && n <= len(m.networks):
			all = append(all, m.networks[n-1])
		default:
			i := slices.IndexFunc(m.networks, func(n network) bool { return n.prefix.String() == word || n.address.String() == word })
			if i < 0 {
				return nil, fmt.Errorf("this machine has no address in %q: write machine, all, or one of its networks, such as %s", word, exampleOf(m))
			}
			all = append(all, m.networks[i])
		}
	}
	return all, nil
}

func exampleOf(m *machine) string {
	if len(m.networks) == 0 {
		return "192.168.1.0/24"
	}
	return m.networks[0].prefix.String()
}

// upstreams reads addresses of resolvers as *forward* has them: with a port or without, or with the
// name in their certificate, tls://ADDRESS%NAME or tls://ADDRESS%NAME:PORT. There IPv6 has no brackets.
func upstreams(text string) (all []string, err error) {
	for _, word := range words(text) {
		address, byTLS := strings.CutPrefix(word, "tls://")
		if byTLS {
			var name string
			var named bool
			if address, name, named = strings.Cut(address, "%"); !named || name == "" {
				return nil, fmt.Errorf("%q needs the name in the resolver's certificate, such as tls://9.9.9.9%%dns.quad9.net", word)
			}
		}
		_, notAddress := netip.ParseAddr(address)
		_, notPort := netip.ParseAddrPort(address)
		if notAddress != nil && (notPort != nil || byTLS) {
			return nil, fmt.Errorf("%q is no address of a resolver, such as 9.9.9.9 or tls://9.9.9.9%%dns.quad9.net", word)
		}
		all = append(all, word)
	}
	if len(all) == 0 {
		return nil, errors.New("a resolver is needed, such as 9.9.9.9")
	}
	return all, nil
}

// plain returns the addresses of upstreams for plain DNS.
func plain(upstreams []string) (all []string) {
	for _, u := range upstreams {
		if address, byTLS := strings.CutPrefix(u, "tls://"); byTLS {
			u, _, _ = strings.Cut(address, "%")
		}
		all = append(all, u)
	}
	return all
}

func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}
