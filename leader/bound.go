package leader

// closeProducer ends the bound producer, if there is one.
func (t *Term) closeProducer() {}

// abandonTx aborts the user's open transaction. The caller has the turn.
func (t *Term) abandonTx() {}
