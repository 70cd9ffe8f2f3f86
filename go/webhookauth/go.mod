module example.com/portcullis/webhookauth

go 1.24
