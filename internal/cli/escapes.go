package cli

import (
	"fmt"
	"strconv"
)

// unescape undoes \t \n \r \\ \xNN.
func unescape(s string) ([]byte, error) {
	var out []byte
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			out = append(out, s[i])
			i++
			continue
		}
		b, n, err := escaped(s[i:])
		if err != nil {
			return nil, err
		}
		out = append(out, b)
		i += n
	}
	return out, nil
}

// escaped reads the escape that s begins with, and its length.
func escaped(s string) (b byte, n int, err error) {
	if len(s) < 2 {
		return 0, 0, fmt.Errorf(`a \ stands at the end; \\ is a backslash`)
	}
	switch s[1] {
	case 't':
		return '\t', 2, nil
	case 'n':
		return '\n', 2, nil
	case 'r':
		return '\r', 2, nil
	case '\\':
		return '\\', 2, nil
	case 'x':
		if len(s) >= 4 {
			if v, err := strconv.ParseUint(s[2:4], 16, 8); err == nil {
				return byte(v), 4, nil
			}
		}
		return 0, 0, fmt.Errorf(`\x needs two hexadecimal digits`)
	}
	return 0, 0, fmt.Errorf(`\%c is no escape; there are \t \n \r \\ \xNN`, []rune(s[1:])[0])
}
