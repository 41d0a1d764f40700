"""ShadowSync: ranks train on their own and are synchronised in the background."""
