package process

import "time"

const (
	firstDelay = 100 * time.Millisecond
	longest    = 5 * time.Second
	// longLived is how long a program must have run for its death to count as
	// a new misfortune and not as one more of the same.
	longLived = 10 * time.Second
)

// Backoff says how long to wait before a program that died is started again:
// at once after a single death (a test's kill -9), ever longer up to 5 s while
// it keeps dying.
type Backoff struct{ next time.Duration }

// Delay is the time to wait after a death that followed lived of running.
func (b *Backoff) Delay(lived time.Duration) time.Duration {
	if lived >= longLived || b.next == 0 {
		b.next = firstDelay
	}
	delay := b.next
	b.next = min(2*b.next, longest)
	return delay
}
