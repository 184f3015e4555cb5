package record_test

import (
	"fmt"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// A batch is encoded, sealed, and read back as a consumer reads the records of
// a Fetch answer.
func Example() {
	var b record.Builder
	b.Append(1700000000000, []byte("user-1"), []byte("signed in"), nil)
	b.Append(1700000000250, []byte("user-1"), nil, []kafka.Header{{Key: "reason", Value: []byte("gone")}})
	wire, _ := b.Seal(record.Stamp{ProducerID: 4711, ProducerEpoch: 0, BaseSequence: 12}, compress.None, nil, 0, nil)

	var d compress.Decompressor
	var r record.Reader
	for data := wire; ; {
		batch, rest, err := record.Next(data)
		if err != nil || batch.IsZero() {
			break
		}
		data = rest
		if err := batch.Verify(); err != nil {
			fmt.Println(err)
			break
		}
		payload, err := batch.Payload(&d, nil, 0)
		if err != nil {
			fmt.Println(err)
			break
		}
		var rec kafka.Record
		for r.Reset(batch, payload); r.Next(&rec); {
			fmt.Printf("%d %s %q %v\n", rec.Offset, rec.Key, rec.Value, len(rec.Headers))
		}
		if r.Err() != nil {
			fmt.Println(r.Err())
		}
		fmt.Println("next offset", batch.NextOffset(), "last sequence", batch.LastSequence())
	}
	// Output:
	// 0 user-1 "signed in" 0
	// 1 user-1 "" 1
	// next offset 2 last sequence 13
}

// Bytes that were damaged are an error that says which offsets are lost.
func ExampleBatch_Verify() {
	var b record.Builder
	b.Append(1700000000000, nil, []byte("value"), nil)
	wire, _ := b.Seal(record.NoProducer, compress.None, nil, 0, nil)
	wire[len(wire)-2] ^= 1

	batch, _, _ := record.Next(wire)
	fmt.Println(batch.Verify())
	// Output:
	// ottla: corrupt record batch at offset 0 (next offset 1): it carries CRC 98948709, its bytes have 8b361f7e: the checksum does not match
}
