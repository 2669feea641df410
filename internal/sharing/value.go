package sharing

import "github.com/valkey-io/valkey-go"

// Value is an answer of Redis. The zero Value is nil.
type Value struct{ message valkey.ValkeyMessage }

// IsNil reports whether there is no value: the key does not exist.
func (v Value) IsNil() bool { return v == Value{} || v.message.IsNil() }

// Bytes returns a string. Anything else, an absent value too, is nil.
func (v Value) Bytes() []byte {
	b, err := v.message.AsBytes()
	if err != nil {
		return nil
	}
	return b
}

// Int returns an integer, or a string that is one, and whether it is.
func (v Value) Int() (int64, bool) {
	n, err := v.message.AsInt64()
	return n, err == nil
}

// Array returns the elements of an array. Anything else has none.
func (v Value) Array() []Value {
	all, err := v.message.ToArray()
	if err != nil {
		return nil
	}
	values := make([]Value, len(all))
	for i, m := range all {
		values[i] = Value{m}
	}
	return values
}

// answerOf splits a result of the library. A nil is a Value, not an error.
func answerOf(result valkey.ValkeyResult) (Value, error) {
	message, err := result.ToMessage()
	if err != nil && !valkey.IsValkeyNil(err) {
		return Value{}, err
	}
	return Value{message}, nil
}
