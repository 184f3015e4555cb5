package produce

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
)

// Murmur2 is the hash of Java's default partitioner (MurmurHash 2.0, seed
// 0x9747b28c).
func Murmur2(key []byte) int32 {
	const (
		m = 0x5bd1e995
		r = 24
	)
	h := uint32(0x9747b28c) ^ uint32(len(key))
	for len(key) >= 4 {
		k := binary.LittleEndian.Uint32(key) * m
		k ^= k >> r
		h = h*m ^ k*m
		key = key[4:]
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return int32(h)
}

// Keyed is the partition of a key under the default partitioner: the sign bit
// of the hash is masked off, never its absolute value taken. An empty key is a
// key. partitions counts all of the topic, with a leader or without.
func Keyed(key []byte, partitions int32) int32 {
	return (Murmur2(key) & 0x7fffffff) % partitions
}

// CRC32 is the partition of a key by its unsigned CRC-32 (IEEE), as librdkafka
// has it.
func CRC32(key []byte, partitions int32) int32 {
	return int32(crc32.ChecksumIEEE(key) % uint32(partitions))
}

// FNV1a is the partition of a key by its FNV-1a hash, a signed number: the
// remainder without its sign, as sarama, kafka-go and librdkafka have it.
func FNV1a(key []byte, partitions int32) int32 {
	return max(fnv1a(key)%partitions, -(fnv1a(key) % partitions))
}

// FNV1aReference is the partition of a key by its FNV-1a hash with the sign bit
// masked off, as the reference hash of sarama and kafka-go.
func FNV1aReference(key []byte, partitions int32) int32 {
	return (fnv1a(key) & 0x7fffffff) % partitions
}

func fnv1a(key []byte) int32 {
	h := uint32(2166136261)
	for _, b := range key {
		h = (h ^ uint32(b)) * 16777619
	}
	return int32(h)
}

// Spread picks the next partition for records without key (KIP-794): at random,
// a partition with more waiting batches less often. waiting has one entry per
// partition; a negative one has no leader and is not picked unless none has.
func Spread(rng *rand.Rand, waiting []int32) int32 {
	longest := int32(-1)
	for _, n := range waiting {
		longest = max(longest, n)
	}
	if longest < 0 {
		return rng.Int32N(int32(len(waiting)))
	}
	var total int64
	for _, n := range waiting {
		total += weight(n, longest)
	}
	at := rng.Int64N(total)
	for i, n := range waiting {
		at -= weight(n, longest)
		if at < 0 {
			return int32(i)
		}
	}
	panic("ottla: the weights do not add up")
}

func weight(waiting, longest int32) int64 {
	if waiting < 0 {
		return 0
	}
	return int64(longest) - int64(waiting) + 1
}
