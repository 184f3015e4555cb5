package compress_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ottla/ottla/record/compress"
)

func Example() {
	codec, err := compress.ParseCodec("lz4")
	if err != nil {
		fmt.Println(err)
		return
	}
	var c compress.Compressor
	wire, _ := c.Compress(nil, codec, 0, []byte(strings.Repeat("all the same, ", 1000)))

	var d compress.Decompressor
	plain, _ := d.Decompress(nil, codec, wire, 1<<20)
	fmt.Println(len(wire) < 200, len(plain))

	_, err = d.Decompress(nil, codec, wire, 1000)
	var over *compress.LimitError
	fmt.Println(errors.As(err, &over), err)
	// Output:
	// true 14000
	// true ottla: lz4 data is longer than the limit of 1000 bytes when decompressed
}
