package webhookauth

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// refreshAfter is the age at which keys are fetched again while they are still used.
	refreshAfter = 5 * time.Minute
	// maxAge is the age from which keys are not used any more.
	maxAge = time.Hour
	// fetchInterval is the shortest time between two fetches, however many tokens name unknown keys.
	fetchInterval = 10 * time.Second
	fetchTimeout  = 5 * time.Second
)

// FetchKeys fetches the issuer's keys.
type FetchKeys func(ctx context.Context) (*KeySet, error)

// KeyCache keeps the issuer's keys and fetches them again: when a token names an unknown key, at most every ten seconds, and every
// five minutes, so that withdrawn keys go away. One fetch is under way at a time; it goes on when the caller that caused it goes
// away. Keys are not used for more than an hour without a successful fetch.
type KeyCache struct {
	fetch FetchKeys
	now   func() time.Time

	mutex   sync.Mutex
	keys    *KeySet
	fetched time.Time
	tried   time.Time
	flight  chan struct{} // closed when the fetch under way has ended
}

// NewKeyCache makes a cache without keys. The first token causes a fetch.
func NewKeyCache(fetch FetchKeys) *KeyCache {
	return &KeyCache{fetch: fetch, now: time.Now}
}

// Prefetch fetches keys now, to find out at start whether they can be had.
func (c *KeyCache) Prefetch(ctx context.Context) error {
	if _, rejection := c.usable(ctx); rejection != nil {
		return rejection
	}
	return nil
}

// Authenticate is [Verifier.Authenticate] with the keys of the cache. The error is a [*Rejection].
func (c *KeyCache) Authenticate(ctx context.Context, verifier *Verifier, token string) (*Identity, error) {
	keys, rejection := c.usable(ctx)
	if rejection != nil {
		return nil, rejection
	}
	identity, rejection := verifier.authenticate(keys, token, c.now())
	if rejection != nil && rejection.Reason == UnknownKey {
		newer := c.newer(ctx)
		if newer != keys {
			identity, rejection = verifier.authenticate(newer, token, c.now())
		}
	}
	if rejection != nil {
		return nil, rejection
	}
	return identity, nil
}

// usable returns keys that may be used, and fetches them first if there are none.
func (c *KeyCache) usable(ctx context.Context) (*KeySet, *Rejection) {
	for range 2 {
		c.mutex.Lock()
		fresh := c.keys != nil && c.now().Sub(c.fetched) < maxAge
		if fresh {
			if c.now().Sub(c.fetched) >= refreshAfter {
				c.start()
			}
			defer c.mutex.Unlock()
			return c.keys, nil
		}
		c.start()
		flight := c.flight
		c.mutex.Unlock()
		if !wait(ctx, flight) {
			break
		}
	}
	return nil, reject(KeysUnavailable, "the issuer's keys could not be fetched")
}

// newer returns the keys after the fetch that is under way or due.
func (c *KeyCache) newer(ctx context.Context) *KeySet {
	c.mutex.Lock()
	c.start()
	flight := c.flight
	c.mutex.Unlock()
	wait(ctx, flight)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.keys
}

// wait returns whether a fetch was under way, after it has ended or the caller has gone.
func wait(ctx context.Context, flight chan struct{}) bool {
	if flight == nil {
		return false
	}
	select {
	case <-flight:
		return true
	case <-ctx.Done():
		return false
	}
}

// start begins a fetch unless one is under way or the last one was begun too recently. The mutex is held.
func (c *KeyCache) start() {
	if c.flight != nil || !c.tried.IsZero() && c.now().Sub(c.tried) < fetchInterval {
		return
	}
	c.tried = c.now()
	flight := make(chan struct{})
	c.flight = flight
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), fetchTimeout)
		defer cancel()
		keys, err := c.fetch(ctx)
		c.mutex.Lock()
		defer c.mutex.Unlock()
		if err != nil {
			slog.Warn("cannot fetch the issuer's keys", "error", err)
		} else {
			c.keys, c.fetched = keys, c.now()
		}
		c.flight = nil
		close(flight)
	}()
}
