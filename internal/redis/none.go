//go:build noredis

package redis

import "context"

// Client stands for a client that this build does not have. Its methods return ErrNotBuilt.
type Client struct{}

// Open returns ErrNotBuilt.
func Open(Config) (*Client, error) { return nil, ErrNotBuilt }

// Close does nothing.
func (*Client) Close() {}

// Key returns name.
func (*Client) Key(name string) string { return name }

// Do returns ErrNotBuilt.
func (*Client) Do(context.Context, string, string, []string, ...string) (Value, error) {
	return Value{}, ErrNotBuilt
}

// Eval returns ErrNotBuilt.
func (*Client) Eval(context.Context, string, *Script, []string, ...string) (Value, error) {
	return Value{}, ErrNotBuilt
}

// Subscribe returns ErrNotBuilt.
func (*Client) Subscribe(context.Context, string, func(string)) error { return ErrNotBuilt }

// Fast returns ErrNotBuilt.
func (*Client) Fast(string, *Script, []string, ...string) (Value, error) {
	return Value{}, ErrNotBuilt
}

// Later does nothing.
func (*Client) Later(string, *Script, []string, ...string) {}

// Script stands for a Lua script.
type Script struct{}

// NewScript returns an empty Script.
func NewScript(string) *Script { return new(Script) }

// Value is an answer, of which there is none.
type Value struct{}

// IsNil returns true.
func (Value) IsNil() bool { return true }

// Bytes returns nil.
func (Value) Bytes() []byte { return nil }

// Int returns false.
func (Value) Int() (int64, bool) { return 0, false }

// Array returns nil.
func (Value) Array() []Value { return nil }
