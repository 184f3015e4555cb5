package cli

import (
	"strconv"

	"github.com/ottla/ottla/kafka"
)

// recordFormat is a parsed FORMAT of consume: literals and letters.
type recordFormat []formatPart

// formatPart is a literal, or the value of a letter if letter is not 0.
type formatPart struct {
	letter  byte
	literal []byte
}

// formatLetters are the letters that may follow a %.
const formatLetters = "tpokKsSTh%"

// parseFormat reads kcat's letters and the escapes.
func parseFormat(s string) (recordFormat, error) {
	var f recordFormat
	literal := func(b byte) {
		if n := len(f); n == 0 || f[n-1].letter != 0 {
			f = append(f, formatPart{})
		}
		last := &f[len(f)-1]
		last.literal = append(last.literal, b)
	}
	for i := 0; i < len(s); {
		switch s[i] {
		case '%':
			if i+1 == len(s) {
				return nil, usagef("-f: a %% stands at the end; %%%% is a percent sign")
			}
			c := s[i+1]
			if !isLetter(c) {
				return nil, usagef("-f: %%%c is not known; there are %%t %%p %%o %%k %%s %%K %%S %%T %%h %%%%", []rune(s[i+1:])[0])
			}
			if c == '%' {
				literal('%')
			} else {
				f = append(f, formatPart{letter: c})
			}
			i += 2
		case '\\':
			b, n, err := escaped(s[i:])
			if err != nil {
				return nil, usagef("-f: %v", err)
			}
			literal(b)
			i += n
		default:
			literal(s[i])
			i++
		}
	}
	return f, nil
}

func isLetter(c byte) bool {
	for i := 0; i < len(formatLetters); i++ {
		if formatLetters[i] == c {
			return true
		}
	}
	return false
}

// appendTo writes r in this format behind dst.
func (f recordFormat) appendTo(dst []byte, r *kafka.Record) []byte {
	for i := range f {
		switch f[i].letter {
		case 0:
			dst = append(dst, f[i].literal...)
		case 't':
			dst = append(dst, r.Topic...)
		case 'p':
			dst = strconv.AppendInt(dst, int64(r.Partition), 10)
		case 'o':
			dst = strconv.AppendInt(dst, int64(r.Offset), 10)
		case 'k':
			dst = append(dst, r.Key...)
		case 's':
			dst = append(dst, r.Value...)
		case 'K':
			dst = appendLen(dst, r.Key)
		case 'S':
			dst = appendLen(dst, r.Value)
		case 'T':
			dst = strconv.AppendInt(dst, int64(r.Timestamp), 10)
		case 'h':
			dst = appendHeaders(dst, r.Headers)
		}
	}
	return dst
}

// appendLen writes the length of b, -1 for null.
func appendLen(dst, b []byte) []byte {
	if b == nil {
		return append(dst, "-1"...)
	}
	return strconv.AppendInt(dst, int64(len(b)), 10)
}

// appendHeaders writes a=1,b=2; a null value is NULL, as with kcat.
func appendHeaders(dst []byte, hs []kafka.Header) []byte {
	for i, h := range hs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, h.Key...), '=')
		if h.Value == nil {
			dst = append(dst, "NULL"...)
		}
		dst = append(dst, h.Value...)
	}
	return dst
}
