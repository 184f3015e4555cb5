package meta

import "testing"

func TestK12HowManyAnswersOfHowManyBrokersAreBelieved(t *testing.T) {
	for _, c := range []struct {
		name    string
		sources []string // of the answers, in order; repeated until believed
		brokers int
		want    int // answers until it is believed; 0 = never within 50
	}{
		{"one broker", []string{"a"}, 1, 3},
		{"two brokers", []string{"a", "b"}, 2, 3},
		{"three brokers", []string{"a", "b", "c"}, 3, 3},
		{"two of three answer", []string{"a", "b"}, 3, 10},
		{"one of three answers", []string{"a"}, 3, 0},
		{"one of two answers", []string{"a"}, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &suspect{}
			got := 0
			for i := range 50 {
				if s.again(c.sources[i%len(c.sources)], 7, c.brokers) {
					got = i + 1
					break
				}
			}
			if got != c.want {
				t.Errorf("believed after %d answers, want %d", got, c.want)
			}
		})
	}
	s := &suspect{}
	s.again("a", 7, 1)
	s.again("a", 7, 1)
	for range 2 {
		if s.again("a", 6, 1) {
			t.Error("answers that disagree were added up")
		}
	}
}
